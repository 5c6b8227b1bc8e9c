//! refused: src/lib.rs:7:22: a trait with an associated type; instead, use a type parameter of a function
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
use alloc::{string::String, vec::Vec};
pub trait Named<T> { type Assoc; }
pub struct Dummy;
pub trait Alias { type Of: ?Sized; }
impl Alias for Dummy { type Of = dyn Named<i32, Assoc = Vec<u8>>; }
type Shape = <Dummy as Alias>::Of;
impl<T> Named<T> for Shape { type Assoc = String; }
fn foo<T>(value: <Shape as Named<T>>::Assoc) -> String { value }
pub fn hole(value: Vec<u8>) -> String { foo::<i32>(value) }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
