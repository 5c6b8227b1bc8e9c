//! compiler: the trait bound `Reply<'_>: Default` is not satisfied
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Record, Reply, Table};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mine = core::mem::take(reply);
    alloc::boxed::Box::leak(alloc::boxed::Box::new(mine)).u8(1)
}
