//! refused: src/lib.rs:6:1: a derive of something else; instead, derive Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd; write the rest
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
#[derive(Clone, CoercePointee)]
pub struct S(u8);
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
