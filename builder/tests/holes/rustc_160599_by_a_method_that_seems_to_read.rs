//! refused: src/lib.rs:8:12: a method called `is_empty` that could change what it is given; instead, take `&self`, and besides shared references and numbers, or choose another name
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct S(pub u8);
impl S {
    pub fn is_empty(&mut self) -> bool { self.0 = 1; false }
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
