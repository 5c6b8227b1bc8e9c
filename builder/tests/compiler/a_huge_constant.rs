//! compiler: tried to allocate more memory than available to compiler
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Record, Reply, Table};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
pub const ZEROS: &[u8] = &[0; 1 << 33];
pub fn f(at: usize) -> u8 { ZEROS[at] }
