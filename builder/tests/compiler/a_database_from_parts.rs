//! compiler: call to unsafe function
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Record, Reply, Table};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
pub fn f(x: &Db<'_>) { let _ = Db::from_raw; let _ = Args::of(loop {}); }
