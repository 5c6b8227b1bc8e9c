//! refused: src/lib.rs:6:20: a qualified path to a type (`<..>::..`); instead, write `T::Item` of a type parameter `T`, or the type itself
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub type Item<T> = <T as Iterator>::Item;
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
