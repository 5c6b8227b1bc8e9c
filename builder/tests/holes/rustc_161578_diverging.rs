//! refused: src/lib.rs:9:34: a match guard that does more than read and compare values; instead, compute it with `let` before the `match`, or write an `if` inside the arm
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f(x: Option<u64>) -> u64 {
    loop {
        match x {
            Some(_) if false && (break 1) => {}
            _ => {}
        }
    }
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
