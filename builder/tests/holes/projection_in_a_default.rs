//! refused: src/lib.rs:8:26: a qualified path to a type (`<..>::..`); instead, write `T::Item` of a type parameter `T`, or the type itself
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct Lent<'a, T>(core::marker::PhantomData<&'a T>);
impl<T> core::ops::Neg for Lent<'_, T> { type Output = (); fn neg(self) {} }
pub struct Given<'a, T = <Lent<'a, ()> as core::ops::Neg>::Output>(pub &'a [u8], pub T);
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
