//! refused: src/lib.rs:6:31: a reference to a reference; instead, use one reference, or a slice of references
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn lengthen<'a, 'b, T>(_: &'a &'b (), value: &'b T) -> &'a T { value }
pub fn f<'x, T>(value: &'x T) -> &'static T {
    let g: fn(_, &'x T) -> &'static T = lengthen;
    g(&&(), value)
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
