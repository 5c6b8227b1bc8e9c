//! compiler: cannot move out of `*reply`
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Record, Reply, Table};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mine = *reply;
    drop(mine);
    Ok(())
}
