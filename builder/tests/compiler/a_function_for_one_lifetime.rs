//! compiler: argument requires that `'a` must outlive `'static`
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Record, Reply, Table};
sandstorm::extension! { read run }
async fn run(_: &Db<'static>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
