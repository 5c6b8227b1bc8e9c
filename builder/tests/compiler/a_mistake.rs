//! compiler: src/lib.rs:8:38
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Record, Reply, Table};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    /* the compiler's text
       names this line: */ reply.u32("seven")
}
