//! refused: src/lib.rs:7:16: a trait with an associated type; instead, use a type parameter of a function
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct Wrap<T>(pub T);
pub trait Id { type Out; }
impl<T> Id for T { type Out = u16; }
pub trait Probe {}
impl<'c> Probe for &'c Wrap<for<'a> fn(<&'a &'c u64 as Id>::Out)> {}
pub trait Mark {}
impl Mark for fn(u16) {}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
