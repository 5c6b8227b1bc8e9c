//! The error of a failed start: the part that failed, and advice for the operator.

use std::fmt;
use std::io;

/// An error that prevented a server's start.
#[derive(Debug)]
pub struct BootError(String);

impl BootError {
    pub(super) fn new(what: &str, error: impl fmt::Display) -> Self {
        Self(format!("{what}: {error}"))
    }

    pub(super) fn listening(place: &str, error: &io::Error) -> Self {
        let next = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "; another server may run there: choose a port with --listen, 0 for a free one"
            }
            _ => "",
        };
        Self(format!("cannot listen on {place}: {error}{next}"))
    }
}

impl fmt::Display for BootError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for BootError {}
