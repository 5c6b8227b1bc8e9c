//! compiler: no method named `clone` found for struct `EntryPage
#![no_std]
extern crate alloc;
use sandstorm::{Args, Cursor, Db, EntryPage, Error, Reply};
sandstorm::extension! { read run }
async fn run(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut page = EntryPage::new();
    db.enumerate(args.table(), Cursor::start(), &mut page).await?;
    let kept = page.clone();
    db.enumerate(args.table(), Cursor::start(), &mut page).await?;
    kept.iter().try_for_each(|entry| reply.write(entry.key))
}
