//! refused: src/lib.rs:7:24: a function pointer type; instead, use a parameter `impl Fn(..)` or an enum
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct Walk<T>(pub T);
impl Iterator for Walk<fn(&())> { type Item = u8; fn next(&mut self) -> Option<u8> { None } }
impl core::iter::FusedIterator for Walk<fn(&())> {}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
