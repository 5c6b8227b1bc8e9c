//! compiler: `scan` does not live long enough
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, KeyRange, Reply};
sandstorm::extension! { read run }
async fn run(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let entry = {
        let mut scan = db.scan(args.table(), KeyRange::all());
        scan.next().await?.ok_or(Error::NotFound)?
    };
    reply.write(entry.value)
}
