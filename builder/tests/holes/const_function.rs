//! refused: src/lib.rs:6:5: a const fn runs while the server compiles; instead, leave `const` out; constants are written with operators of core
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub const fn f(n: u64) -> u64 { if n < 2 { 1 } else { f(n - 1) + f(n - 2) } }
pub const X: u64 = f(60);
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
