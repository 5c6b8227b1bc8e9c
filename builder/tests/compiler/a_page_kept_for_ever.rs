//! compiler: borrowed data escapes outside of function
#![no_std]
extern crate alloc;
use sandstorm::{Args, Cursor, Db, EntryPage, Error, Reply};
sandstorm::extension! { read run }
async fn fill(db: &Db<'_>, args: Args<'_>, page: &mut EntryPage<'static>) -> Result<(), Error> {
    db.enumerate(args.table(), Cursor::start(), page).await.map(drop)
}
async fn run(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut page = EntryPage::new();
    fill(db, args, &mut page).await?;
    reply.u64(alloc::boxed::Box::leak(alloc::boxed::Box::new(page)).len() as u64)
}
