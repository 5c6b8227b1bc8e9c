//! refused: src/lib.rs:11:55: a `break` or `continue` within the arguments of a call; instead, compute it with `let` first
#![no_std]
extern crate alloc;
use alloc::{boxed::Box, vec::Vec};
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }

pub fn f(n: Option<u32>) -> u32 {
    let mut v: Option<u32> = None; let mut r: Option<&mut u32> = None;
    loop { r = Some(v.insert({ let Some(n) = n else { break }; n })); break; }
    let s = &v; if let Some(r) = r { *r = 2; } s.unwrap_or(0)
}
