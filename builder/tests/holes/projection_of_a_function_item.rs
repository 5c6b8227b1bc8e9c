//! refused: src/lib.rs:8:38: a qualified path to a type (`<..>::..`); instead, write `T::Item` of a type parameter `T`, or the type itself
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct Lent<'a, T>(core::marker::PhantomData<&'a T>);
impl<T> core::ops::Neg for Lent<'_, T> { type Output = (); fn neg(self) {} }
pub fn get<'s, S>(text: &'s [u8], _: <Lent<'s, S> as core::ops::Neg>::Output) -> &'static [u8] { text }
pub fn apply(f: impl Fn(&[u8], ()) -> &'static [u8], a: &[u8]) -> &'static [u8] { f(a, ()) }
pub fn hole(text: &[u8]) -> &'static [u8] { apply(get, text) }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
