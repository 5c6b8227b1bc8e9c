//! Which machine this is: two processes that name the same one may share memory.

use std::fs;
use std::io;

/// Where Linux says which start of which machine this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// 16 bytes that are the same in every process of this machine, until it is started anew, and on no other.
///
/// # Errors
/// When the system does not say.
pub fn machine() -> io::Result<[u8; 16]> {
    let text = fs::read_to_string(BOOT_ID)?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(number.to_be_bytes())
}
