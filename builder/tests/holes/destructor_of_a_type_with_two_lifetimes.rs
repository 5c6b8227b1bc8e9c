//! refused: src/lib.rs:7:1: a destructor of a type with bounds or several lifetimes; instead, leave them out of the type, and give bounds to its methods
#![no_std]
use core::cell::Cell;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct Both<'a, 'b>(pub &'a Cell<u8>, pub &'b [u8]);
impl Drop for Both<'_, '_> {
    fn drop(&mut self) { self.0.set(self.1.len() as u8); }
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
