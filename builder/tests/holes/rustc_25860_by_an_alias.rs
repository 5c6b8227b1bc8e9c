//! refused: src/lib.rs:6:5: a type alias with a lifetime; instead, write the type out, or make it a struct
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub type Ref<'a, T> = &'a T;
pub fn lengthen<'a, 'b, T>(_: Ref<'a, Ref<'b, ()>>, value: &'b T) -> &'a T { value }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
