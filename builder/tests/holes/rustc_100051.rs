//! refused: src/lib.rs:9:19: an associated type in an impl header or a type alias; instead, give the type a parameter of its own: `impl<I: Iterator<Item = T>, T> ..`
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub trait Extend { fn extend<'a, 'b>(self, s: &'b str) -> &'a str; }
pub struct Two<'a, T>(pub &'a T);
impl<'a, 'b> Iterator for Two<'a, &'b ()> { type Item = (); fn next(&mut self) -> Option<()> { None } }
impl<'a, 'b> From<<Two<'a, &'b ()> as Iterator>::Item> for Two<'a, &'b ()> {
    fn from(_: ()) -> Self { loop {} }
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
