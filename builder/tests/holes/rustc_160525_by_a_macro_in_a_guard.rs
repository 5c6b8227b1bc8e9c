//! refused: src/lib.rs:10:21: a match guard that does more than read and compare values; instead, compute it with `let` before the `match`, or write an `if` inside the arm
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
use alloc::boxed::Box;
pub fn hole() -> u64 {
    let rows = [[Some(Box::new(42u64))]];
    match rows[0][0] {
        Some(_) if !matches!(rows, [_row]) => 1,
        Some(ref b) => **b,
        None => 3,
    }
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
