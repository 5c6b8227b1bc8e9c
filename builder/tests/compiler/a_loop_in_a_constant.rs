//! compiler: constant evaluation is taking a long time
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Record, Reply, Table};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
pub const X: u64 = { let mut i = 0u64; while i < 1 << 60 { i += 1; } i };
