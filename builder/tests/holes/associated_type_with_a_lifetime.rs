//! refused: src/lib.rs:8:5: an associated type with a lifetime; instead, write a method of the type's own that returns the reference
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct S<'a>(&'a [u8]);
impl<'a> Iterator for S<'a> {
    type Item = &'a u8;
    fn next(&mut self) -> Option<&'a u8> { self.0.first() }
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
