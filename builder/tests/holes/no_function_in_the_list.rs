//! refused: src/lib.rs:3:1: an extension of 0 functions; instead, name 1 to 64 functions
#![no_std]
sandstorm::extension! {}
