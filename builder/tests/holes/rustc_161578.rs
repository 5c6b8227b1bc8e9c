//! refused: src/lib.rs:9:20: a match guard that does more than read and compare values; instead, compute it with `let` before the `match`, or write an `if` inside the arm
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
use alloc::boxed::Box;
pub fn f(mut x: Option<Box<u64>>) {
    match x {
        Some(_) if { x = None; false } && return => {}
        Some(_b) => {}
        None => {}
    }
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
