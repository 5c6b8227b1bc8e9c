//! The identity of this machine: two processes with the same one may share memory.

use std::fs;
use std::io;

/// The file with Linux's identifier of this boot of this machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Returns 16 bytes that identify this boot of this machine, equal in all its processes and unique.
///
/// # Errors
/// If the system does not provide them.
pub fn machine() -> io::Result<[u8; 16]> {
    let text = fs::read_to_string(BOOT_ID)?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(number.to_be_bytes())
}
