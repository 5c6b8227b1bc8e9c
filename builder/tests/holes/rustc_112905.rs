//! refused: src/lib.rs:6:21: a lifetime as a bound; instead, leave it out; the compiler finds what a type borrows
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn is_static<T: 'static>(value: T) -> T { value }
pub fn f(text: &str) { let _ = is_static(|text: &str| text.len()); let _ = text; }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
