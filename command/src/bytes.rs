//! Keys, values and arguments on the command line: text, hex, or the content of a file.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use std::convert::Infallible;
use std::str::FromStr;

use super::failure::{Failure, FailureKind};

/// What the user gave, before files are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes(String);

impl FromStr for Bytes {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Bytes, Infallible> {
        Ok(Bytes(text.to_owned()))
    }
}

impl Bytes {
    /// The bytes: of the file after `@`, of the hex digits after `0x`, of the text itself. Text that
    /// begins with `@` or `0x` is given through a file.
    pub fn read(&self) -> Result<Vec<u8>, Failure> {
        if let Some(path) = self.0.strip_prefix('@') {
            return std::fs::read(path)
                .map_err(|error| Failure::new(FailureKind::Local, format!("cannot read {path}: {error}")))
                .map_err(|failure| failure.next("after @ comes the path of a file"));
        }
        match self.0.strip_prefix("0x") {
            Some(digits) => from_hex(digits).ok_or_else(|| {
                Failure::new(FailureKind::Local, format!("no hex: {}", self.0))
                    .next("after 0x comes an even number of digits 0-9, a-f")
            }),
            None => Ok(self.0.clone().into_bytes()),
        }
    }
}

/// Hex digits of bytes.
pub fn to_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// Bytes as a terminal can show them: text as it is, anything else as hex, the way it can be given back.
/// Control characters besides line ends and tabs could play with the terminal.
pub fn shown(bytes: &[u8]) -> String {
    let harmless = |letter: char| !letter.is_control() || matches!(letter, '\n' | '\t');
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().all(harmless) => text.to_owned(),
        _ => format!("0x{}", to_hex(bytes)),
    }
}

/// The bytes of hex digits.
pub fn from_hex(digits: &str) -> Option<Vec<u8>> {
    HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::{Bytes, shown, to_hex};
    use std::io::Write;

    fn read(text: &str) -> Result<Vec<u8>, String> {
        text.parse::<Bytes>().unwrap().read().map_err(|failure| failure.to_string())
    }

    #[test]
    fn text_hex_and_files_are_told_apart() {
        assert_eq!(read("plain").unwrap(), b"plain");
        assert_eq!(read("").unwrap(), b"");
        assert_eq!(read("0xDEad00").unwrap(), [0xde, 0xad, 0]);
        assert_eq!(read("0x").unwrap(), b"");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[0, 255]).unwrap();
        assert_eq!(read(&format!("@{}", file.path().display())).unwrap(), [0, 255]);
        assert_eq!(to_hex(&[0, 255, 16]), "00ff10");
    }

    #[test]
    fn what_could_play_with_a_terminal_is_shown_as_hex() {
        assert_eq!(shown("Ada, grüß\n\tdich".as_bytes()), "Ada, grüß\n\tdich");
        assert_eq!(shown(&7u64.to_le_bytes()), "0x0700000000000000");
        assert_eq!(shown(b"\x1b[2J"), "0x1b5b324a");
        assert_eq!(shown(&[0xff, b'a']), "0xff61");
    }

    #[test]
    fn what_is_no_hex_and_no_file_is_refused() {
        for text in ["0xabc", "0xgg", "0x+1", "0xä"] {
            assert!(read(text).unwrap_err().contains("no hex"), "{text}");
        }
        assert!(read("@/no/such/file").unwrap_err().contains("/no/such/file"));
    }
}
