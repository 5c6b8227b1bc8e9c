//! compiler: explicit lifetime required in the type of `scan`
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, KeyRange, Reply, Scan};
sandstorm::extension! { read run }
async fn first<'a>(scan: &mut Scan<'_, 'a>) -> Result<&'a [u8], Error> {
    Ok(scan.next().await?.ok_or(Error::NotFound)?.value)
}
async fn run(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.write(first(&mut db.scan(args.table(), KeyRange::all())).await?)
}
