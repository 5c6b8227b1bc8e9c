//! refused: src/lib.rs:6:20: a trait with an associated type; instead, use a type parameter of a function
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub trait Object { type Output; }
impl<T: ?Sized> Object for T { type Output = &'static u64; }
pub fn f<T: ?Sized + Object>(x: T::Output) -> T::Output { x }
pub fn g(x: &dyn Object<Output = usize>) {}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
