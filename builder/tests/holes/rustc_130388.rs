//! refused: src/lib.rs:6:47: `core::ptr` is not for extensions; instead, keep to the parts that docs/extensions.md lists
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f(value: &u8) -> bool { let at = core::ptr::from_ref(value).addr(); (0..=usize::MAX).any(|one| one == at) }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
