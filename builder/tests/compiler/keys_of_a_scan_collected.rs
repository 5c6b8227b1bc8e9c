//! compiler: cannot borrow `scan` as mutable more than once at a time
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, KeyRange, Reply};
sandstorm::extension! { read run }
async fn run(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let (mut scan, mut keys) = (db.scan(args.table(), KeyRange::all()), alloc::vec::Vec::new());
    while let Some(entry) = scan.next().await? {
        keys.push(entry.key);
    }
    keys.into_iter().try_for_each(|key| reply.write(key))
}
