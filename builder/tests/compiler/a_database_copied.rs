//! compiler: the trait bound `Db<'_>: Clone` is not satisfied
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Record, Reply, Table};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
pub fn f<'a>(db: &Db<'a>) -> Db<'a> { Db::clone(db) }
