//! refused: src/lib.rs:7:28: an associated type in an impl header or a type alias; instead, give the type a parameter of its own: `impl<I: Iterator<Item = T>, T> ..`
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub trait Size { fn size(&self) -> usize; }
impl<'a, 'b> Size for (u8, <core::slice::Iter<'a, &'b u8> as Iterator>::Item) { fn size(&self) -> usize { 0 } }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
