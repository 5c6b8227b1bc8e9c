//! refused: src/lib.rs:7:25: a trait for a mutable reference; instead, implement it for the type itself
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct S(pub Option<u64>);
impl core::ops::Not for &mut S {
    type Output = bool;
    fn not(self) -> bool { self.0 = None; false }
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
