//! refused: src/lib.rs:6:20: an associated type in an impl header or a type alias; instead, give the type a parameter of its own: `impl<I: Iterator<Item = T>, T> ..`
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub type Item<T> = <T as Iterator>::Item;
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
