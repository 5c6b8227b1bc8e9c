//! compiler: cannot borrow `page` as mutable because it is also borrowed as immutable
#![no_std]
extern crate alloc;
use sandstorm::{Args, Cursor, Db, EntryPage, Error, Reply};
sandstorm::extension! { read run }
async fn run(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut page = EntryPage::new();
    let next = db.enumerate(args.table(), Cursor::start(), &mut page).await?.unwrap_or(Cursor::start());
    let value = page.get(0).ok_or(Error::NotFound)?.value;
    db.enumerate(args.table(), next, &mut page).await?;
    reply.write(value)
}
