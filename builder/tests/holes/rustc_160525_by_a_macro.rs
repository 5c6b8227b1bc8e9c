//! refused: src/lib.rs:9:31: an index that does more than read values and calculate; instead, compute it with `let` first
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
use alloc::boxed::Box;
pub fn hole() -> u64 {
    let mut rows = [[Box::new(42u64)]];
    let alias = &mut rows[0][!matches!(rows, [_row]) as usize];
    **alias
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
