//! refused: src/lib.rs: the extension names no function that callers may invoke; instead, write `sandstorm::extension! { read NAME, write NAME }`
#![no_std]
pub fn f() {}
