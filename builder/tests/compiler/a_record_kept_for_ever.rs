//! compiler: borrowed data escapes outside of function
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Record, Reply, Table};
sandstorm::extension! { read run }
struct Kept(alloc::vec::Vec<Record<'static>>);
async fn run(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let mut kept = Kept(alloc::vec::Vec::new());
    kept.0.extend(db.get_record(args.table(), args.key()).await?);
    alloc::boxed::Box::leak(alloc::boxed::Box::new(kept));
    Ok(())
}
