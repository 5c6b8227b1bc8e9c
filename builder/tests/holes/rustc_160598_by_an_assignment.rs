//! refused: src/lib.rs:13:97: a `break` or `continue` within the arguments of a call; instead, compute it with `let` first
#![no_std]
extern crate alloc;
use alloc::{boxed::Box, rc::Rc, string::String, vec::Vec, collections::{BTreeMap, VecDeque}};
use core::cell::{Cell, RefCell};
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }

pub struct S(u32);
pub struct T<'a>(Option<&'a mut S>);
impl core::ops::AddAssign<u32> for S { fn add_assign(&mut self, o: u32) { self.0 += o; } }
pub fn f(n: Option<u32>) -> u32 { let mut v = S(1); loop { v += match n { Some(n) => n, None => break }; break; } v.0 }
