//! refused: src/lib.rs:9:1: a destructor of a type with bounds or several lifetimes; instead, leave them out of the type, and give bounds to its methods
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
mod ends { pub use core::ops::Drop; }
use self::ends::Drop as Ends;
pub trait Said { fn say(&self); }
pub struct Says<T: Said>(pub T);
impl<T> Ends for Says<T> where T: Said {
    fn drop(&mut self) { self.0.say(); }
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
