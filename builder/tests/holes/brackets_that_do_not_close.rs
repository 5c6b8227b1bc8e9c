//! refused: src/lib.rs:6:12: this is no Rust; instead, mend it; `cargo check` says more
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f() {
