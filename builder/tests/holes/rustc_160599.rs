//! refused: src/lib.rs:9:20: a match guard that does more than read and compare values; instead, compute it with `let` before the `match`, or write an `if` inside the arm
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f(a: &mut (Option<&u64>, u8), b: &mut (Option<&u64>, u8)) -> u64 {
    let mut p = a;
    match p.0 {
        Some(_) if { p.1 = 1; p = b; false } => 0,
        Some(r) => *r,
        None => 1,
    }
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
