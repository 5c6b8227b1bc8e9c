//! refused: src/lib.rs:7:28: a qualified path to a type (`<..>::..`); instead, write `T::Item` of a type parameter `T`, or the type itself
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub trait Size { fn size(&self) -> usize; }
impl<'a, 'b> Size for (u8, <core::slice::Iter<'a, &'b u8> as Iterator>::Item) { fn size(&self) -> usize { 0 } }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
