//! refused: src/lib.rs:8:24: an associated type in an impl header or a type alias; instead, give the type a parameter of its own: `impl<I: Iterator<Item = T>, T> ..`
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub trait Take<T> { fn take(&self, value: T); }
pub struct S<I>(pub I);
impl<I: Iterator> Take<I::Item> for S<I> { fn take(&self, _: I::Item) {} }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
