//! refused: src/lib.rs:12:14: a match guard that does more than read and compare values; instead, compute it with `let` before the `match`, or write an `if` inside the arm
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct S(pub u8, pub u8);
impl S {
    pub fn change(&mut self) -> bool { self.1 = 1; false }
}
pub fn f(p: &mut S) -> u8 {
    match p.0 {
        0 if p.change() => 0,
        _ => 1,
    }
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
