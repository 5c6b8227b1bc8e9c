//! compiler: fields `host` and `context` of struct `Db` are private
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Record, Reply, Table};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
pub fn f() { let _ = Db { ..loop {} }; }
