//! compiler: are too big for the target architecture
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Record, Reply, Table};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
type A = [u64; 1 << 30];
type B = [A; 1 << 30];
pub fn f() -> usize { core::mem::size_of::<[B; 1 << 30]>() }
