//! refused: src/lib.rs:8:30: a named lifetime beside a type with another one; instead, leave one of the names out, or use one name for both
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
