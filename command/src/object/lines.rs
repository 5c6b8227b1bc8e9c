//! Objects in a file, one per line: `KEY<tab>VALUE`, or a JSON object. The JSON output of a command is such a file:
//! each object is on a separate line, followed by a comma, and the lines around the objects are skipped.
//!
//! A line is data: `@` has no meaning in it, so that no line can name a file. Lines are read on demand; a line longer
//! than the maximum object ends the reading with an error.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};

use serde_json::Value;

use crate::bytes::from_hex;
use crate::failure::{Failure, FailureKind};
use crate::options::LineFormat;

/// A line has key and value, each byte in two hex digits, in JSON also as text with escapes of up to six letters.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// An object of a line; a line for a deletion has only the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineObject {
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
    pub ttl_ms: Option<u64>,
}

/// The objects of a file.
pub struct Lines {
    input: Box<dyn BufRead>,
    name: String,
    format: LineFormat,
    /// Remaining objects of the last line, if that was a whole answer.
    answered: VecDeque<LineObject>,
    /// Number of the last line, from 1.
    pub number: u64,
}

impl Lines {
    /// Opens the file at `path`, or standard input for `-`.
    pub fn open(path: &str, format: LineFormat) -> Result<Lines, Failure> {
        let (input, name): (Box<dyn BufRead>, _) = match path {
            "-" => (Box::new(BufReader::new(std::io::stdin())), "standard input".to_owned()),
            path => {
                let file = std::fs::File::open(path).map_err(|error| {
                    Failure::new(FailureKind::Local, format!("cannot read {path}: {error}"))
                })?;
                (Box::new(BufReader::new(file)), path.to_owned())
            }
        };
        Ok(Lines { input, name, format, answered: VecDeque::new(), number: 0 })
    }

    /// Returns the next object; `None` at the end. Skips empty lines.
    pub fn read(&mut self) -> Result<Option<LineObject>, Failure> {
        loop {
            if let Some(object) = self.answered.pop_front() {
                return Ok(Some(object));
            }
            let mut line = Vec::new();
            let read = (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            read.map_err(|error| {
                Failure::new(FailureKind::Local, format!("cannot read {}: {error}", self.name))
            })?;
            if line.is_empty() {
                return Ok(None);
            }
            self.number += 1;
            if line.len() as u64 == LINE_BYTES_MAX {
                return Err(self.wrong("it is longer than the largest object"));
            }
            while line.last().is_some_and(|last| matches!(last, b'\n' | b'\r')) {
                line.pop();
            }
            if line.is_empty() {
                continue;
            }
            let objects = match self.format {
                LineFormat::Tab => of_tab(&line).map(|object| vec![object]),
                LineFormat::Json => of_json(&line),
            };
            self.answered.extend(objects.map_err(|what| self.wrong(what))?);
        }
    }

    fn wrong(&self, what: &str) -> Failure {
        Failure::new(FailureKind::Local, format!("line {} of {}: {what}", self.number, self.name))
            .next("a line is KEY, tab, VALUE, or with --format json {\"key\": .., \"value\": ..}")
    }
}

fn of_tab(line: &[u8]) -> Result<LineObject, &'static str> {
    let at = line.iter().position(|&byte| byte == b'\t');
    let (key, value) = at.map_or((line, None), |at| (&line[..at], Some(&line[at + 1..])));
    Ok(LineObject { key: of_field(key)?, value: value.map(of_field).transpose()?, ttl_ms: None })
}

fn of_field(field: &[u8]) -> Result<Vec<u8>, &'static str> {
    match field.strip_prefix(b"0x") {
        Some(digits) => {
            str::from_utf8(digits).ok().and_then(from_hex).ok_or("0x is not followed by pairs of hex digits")
        }
        None => Ok(field.to_vec()),
    }
}

/// Parses the objects of a line: one, those of a whole answer, or none for a line around the objects of an answer.
fn of_json(line: &[u8]) -> Result<Vec<LineObject>, &'static str> {
    let line = line.trim_ascii();
    if line.starts_with(b"]") || line.starts_with(b"{") && line.ends_with(b"\"objects\":[") {
        return Ok(Vec::new());
    }
    let line = line.strip_suffix(b",").unwrap_or(line);
    let value: Value = serde_json::from_slice(line).map_err(|_| "it is not JSON")?;
    match value["objects"].as_array() {
        Some(objects) => objects.iter().map(of_object).collect(),
        None => of_object(&value).map(|object| vec![object]),
    }
}

fn of_object(value: &Value) -> Result<LineObject, &'static str> {
    let key = of_value(&value["key"]).ok_or("its key is neither a text nor has hex")?;
    let ttl_ms = match &value["ttl_ms"] {
        Value::Null => None,
        ttl_ms => Some(ttl_ms.as_u64().ok_or("its ttl_ms is not a number of milliseconds")?),
    };
    let value = match &value["value"] {
        Value::Null => None,
        value => Some(of_value(value).ok_or("its value is neither a text nor has hex")?),
    };
    Ok(LineObject { key, value, ttl_ms })
}

/// Parses a text, or `{"hex": ..}`.
fn of_value(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.clone().into_bytes()),
        value => value["hex"].as_str().and_then(from_hex),
    }
}

#[cfg(test)]
mod tests {
    use super::{LineFormat, LineObject, Lines, VecDeque, of_json, of_tab};

    fn object(key: &[u8], value: Option<&[u8]>) -> Result<LineObject, &'static str> {
        Ok(LineObject { key: key.to_vec(), value: value.map(<[u8]>::to_vec), ttl_ms: None })
    }

    #[test]
    fn a_line_is_key_and_value_as_text_or_hex() {
        assert_eq!(of_tab(b"a\tb\tc"), object(b"a", Some(b"b\tc")));
        assert_eq!(of_tab(b"0x00ff\t0x"), object(&[0, 255], Some(b"")));
        assert_eq!(of_tab(b"@/etc/hostname"), object(b"@/etc/hostname", None));
        assert_eq!(of_tab(b"\xff\t"), object(b"\xff", Some(b"")));
        assert!(of_tab(b"0xf\tb").is_err() && of_tab(b"a\t0xzz").is_err());
    }

    #[test]
    fn a_line_of_json_is_what_the_command_prints() {
        let printed = br#"{"key":{"bytes":2,"text":null,"hex":"00ff"},"version":3,"value":{"hex":"61"}}"#;
        let one = |line: &[u8]| of_json(line).map(|objects| <[LineObject; 1]>::try_from(objects).unwrap());
        let [of_printed] = one(printed).unwrap();
        assert_eq!(Ok(of_printed), object(&[0, 255], Some(b"a")));
        assert_eq!(one(br#" {"key":"k"},"#).unwrap(), [object(b"k", None).unwrap()]);
        assert_eq!(one(br#"{"key":"k","value":"v","ttl_ms":7}"#).unwrap()[0].ttl_ms, Some(7));
        for around in [&br#"{"cursor":null,"objects":["#[..], br#"],"table":"t"}"#, br#"{"objects":[]}"#] {
            assert_eq!(of_json(around), Ok(vec![]));
        }
        assert_eq!(of_json(br#"{"objects":[{"key":"a"},{"key":"b"}]}"#).unwrap().len(), 2);
        for wrong in
            [&b"{"[..], b"[]", b"{}", br#"{"key":1}"#, br#"{"key":"k","value":7}"#, b",", br#""objects":["#]
        {
            assert!(of_json(wrong).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
        assert!(of_json(br#"{"key":"k","value":"v","ttl_ms":-1}"#).is_err());
    }

    #[test]
    fn a_line_that_is_wrong_is_named_by_its_number() {
        let text = &b"a\tb\r\n\n\nc\t0x1\n"[..];
        let mut lines = Lines {
            input: Box::new(text),
            name: "file".to_owned(),
            format: LineFormat::Tab,
            answered: VecDeque::new(),
            number: 0,
        };
        assert_eq!(lines.read().unwrap(), object(b"a", Some(b"b")).ok());
        assert!(lines.read().unwrap_err().to_string().contains("line 4 of file"));
        assert_eq!(lines.read().unwrap(), None);
    }
}
