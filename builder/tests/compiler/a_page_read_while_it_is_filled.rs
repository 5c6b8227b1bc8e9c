//! compiler: cannot borrow `page` as immutable because it is also borrowed as mutable
#![no_std]
extern crate alloc;
use sandstorm::{Args, Cursor, Db, EntryPage, Error, Reply};
sandstorm::extension! { read run }
async fn run(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut page = EntryPage::new();
    let filling = db.enumerate(args.table(), Cursor::start(), &mut page);
    reply.u64(page.len() as u64)?;
    filling.await.map(drop)
}
