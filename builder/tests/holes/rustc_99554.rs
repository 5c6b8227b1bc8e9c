//! refused: src/lib.rs:8:42: a qualified path to a type (`<..>::..`); instead, write `T::Item` of a type parameter `T`, or the type itself
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
use alloc::borrow::ToOwned;
pub struct Local;
impl<T: Clone> core::ops::Add<Local> for <T as ToOwned>::Owned {
    type Output = usize;
    fn add(self, _: Local) -> usize { 0 }
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
