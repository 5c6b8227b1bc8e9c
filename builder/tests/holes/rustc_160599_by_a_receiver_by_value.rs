//! refused: src/lib.rs:6:21: a method called `len` that could change what it is given; instead, take `&self`, and besides shared references and numbers, or choose another name
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub trait Size { fn len(self) -> usize; }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
