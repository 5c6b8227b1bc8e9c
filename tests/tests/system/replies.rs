//! What tests read of a refusal and of what a command printed.

use std::fmt::Debug;

use client::{Error, Status};

/// The status of a refusal.
pub fn refusal<T: Debug>(result: Result<T, Error>) -> Status {
    result.expect_err("the server refuses").status().expect("the server answered")
}

/// What a command printed, which is text.
pub fn said(output: &[u8]) -> String {
    String::from_utf8(output.to_vec()).expect("text")
}
