//! refused: src/lib.rs:6:33: a trait object (`dyn`); instead, use a generic parameter or an enum
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f() -> alloc::boxed::Box<dyn Fn() -> u8> { alloc::boxed::Box::new(|| 1) }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
