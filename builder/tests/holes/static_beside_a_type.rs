//! refused: src/lib.rs:7:34: `'static` beside a type that is more than text or numbers; instead, leave the lifetime out
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct Lent<'a, T>(core::marker::PhantomData<&'a T>);
pub fn outlives<T>(_: Option<Lent<'static, T>>) {}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
