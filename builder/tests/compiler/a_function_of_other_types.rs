//! compiler: mismatched types
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Record, Reply, Table};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: u32, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
