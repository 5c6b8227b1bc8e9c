//! refused: src/lib.rs:6:17: something called like a primitive type; instead, choose another name
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct Lent<'a, T>(core::marker::PhantomData<&'a T>);
pub fn outlives<u8>(_: Option<&'static u8>, _: Option<Lent<'static, u8>>) {}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
