//! refused: src/lib.rs:10:40: an index that does more than read values and calculate; instead, compute it with `let` first
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct S(pub usize);
impl S {
    pub fn next(&mut self) -> usize { self.0 += 1; self.0 }
}
pub fn f(x: &[u8], mut s: S) -> u8 { x[s.next()] }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
