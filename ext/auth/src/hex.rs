//! Digests as the standards print them, for the tests of this crate.

extern crate alloc;

use alloc::format;
use alloc::string::String;

/// Two digits a byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
