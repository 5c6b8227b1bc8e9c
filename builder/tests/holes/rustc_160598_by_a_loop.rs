//! refused: src/lib.rs:15:57: a `break` or `continue` within the arguments of a call; instead, compute it with `let` first
#![no_std]
extern crate alloc;
use alloc::vec::Vec;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }

pub struct S(u32);
impl S { fn lend(&mut self, _: u32) -> &mut S { self } }
pub fn by_method(n: Option<u32>) -> u32 {
    let mut v = S(1);
    let mut r: Option<&mut S> = None;
    loop {
        r = Some(v.lend(match n { Some(n) => n, None => break }));
        break;
    }
    let s = &v;
    if let Some(r) = r { r.0 = 2; }
    s.0
}
