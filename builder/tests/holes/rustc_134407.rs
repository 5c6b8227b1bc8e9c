//! refused: src/lib.rs:8:27: a trait object (`dyn`); instead, use a generic parameter or an enum
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
use core::pin::Pin;
pub trait Local {}
pub fn f(pinned: Pin<&mut dyn Local>) -> Pin<&mut dyn Local> { pinned }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
