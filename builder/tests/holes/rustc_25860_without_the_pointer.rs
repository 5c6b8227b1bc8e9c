//! refused: src/lib.rs:6:31: a named reference around another lifetime; instead, leave one of the names out, or use one name for both
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn lengthen<'a, 'b, T>(_: &'a [&'b ()], value: &'b T) -> &'a T { value }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
