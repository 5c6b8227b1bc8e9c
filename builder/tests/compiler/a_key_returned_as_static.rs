//! compiler: lifetime may not live long enough
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Record, Reply, Table};
sandstorm::extension! { read run }
fn keep(args: Args<'_>) -> &'static [u8] { args.key() }
async fn run(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> { reply.write(keep(args)) }
