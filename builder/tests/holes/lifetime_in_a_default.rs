//! refused: src/lib.rs:6:29: a lifetime in what a parameter is if nothing is said; instead, write the type where it is used
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct Holder<'b>(pub &'b [u8]);
pub struct Tied<'h, 'b, T = Holder<'b>>(&'h [T], Holder<'b>);
/// Of `'b: 'h`, which is written nowhere.
pub fn shorten<'h, 'b>(_: Tied<'h, 'b>, value: &'b [u8]) -> &'h [u8] { value }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
