//! compiler: reached the recursion limit while instantiating
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Record, Reply, Table};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
fn f<T>(n: u32, t: T) { if n > 0 { f(n - 1, (t, 1u8)) } }
pub fn g() { f(100, ()) }
