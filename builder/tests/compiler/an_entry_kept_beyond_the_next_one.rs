//! compiler: cannot borrow `scan` as mutable more than once at a time
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, KeyRange, Reply};
sandstorm::extension! { read run }
async fn run(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut scan = db.scan(args.table(), KeyRange::all());
    let first = scan.next().await?.ok_or(Error::NotFound)?;
    let second = scan.next().await?.ok_or(Error::NotFound)?;
    reply.write(first.value)?;
    reply.write(second.value)
}
