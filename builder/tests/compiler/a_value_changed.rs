//! compiler: cannot assign to `value[_]`, which is behind a `&` reference
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Record, Reply, Table};
sandstorm::extension! { read run }
async fn run(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let value = db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?;
    value[0] = 1;
    Ok(())
}
