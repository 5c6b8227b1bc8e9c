//! refused: src/lib.rs:12:76: a `break` or `continue` within the arguments of a call; instead, compute it with `let` first
#![no_std]
extern crate alloc;
use alloc::{boxed::Box, rc::Rc, string::String, vec::Vec, collections::{BTreeMap, VecDeque}};
use core::cell::{Cell, RefCell};
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }

pub fn f(n: Option<u32>) -> u32 {
    let mut v: Option<u32> = None; let mut r: Option<&mut u32> = None;
    'b: { r = Some(v.insert(alloc::vec![1, match n { Some(n) => n, None => break 'b }][1])); }
    let s = &v; if let Some(r) = r { *r = 2; } s.unwrap_or(0)
}
