//! Answers on the screen: text for people, one JSON value for programs.

use super::bytes::shown;
use super::failure::{Failure, FailureKind};
use clap::ValueEnum;
use jiff::Timestamp;
use serde_json::Value;
use std::io::{ErrorKind, IsTerminal, Write};
use std::iter;
use unicode_width::UnicodeWidthStr;

/// How to print an answer. The option explains both at once: values with a text of their own would spread every
/// option of every command over several lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Text,
    Json,
}

/// What a command answers, in both forms.
#[derive(Debug)]
pub struct Answer {
    text: Vec<u8>,
    json: Value,
    /// What a reader of the JSON could overlook, for standard error; the text says it itself.
    note: Option<String>,
    failure: Option<Failure>,
}

impl Answer {
    /// An answer of one or more lines.
    pub fn new(text: impl Into<String>, json: Value) -> Answer {
        let mut text = text.into().into_bytes();
        if !text.is_empty() && !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        Answer { text, json, note: None, failure: None }
    }

    /// Bytes: as they are for a file or a program, as it can show them for a terminal.
    pub fn bytes(bytes: &[u8], json: Value) -> Answer {
        match std::io::stdout().is_terminal() {
            true => Answer::new(shown(bytes) + "\n", json),
            false => Answer { text: bytes.to_vec(), json, note: None, failure: None },
        }
    }

    /// The same of a command of which a part failed.
    pub fn but(self, failure: Failure) -> Answer {
        Answer { failure: Some(failure), ..self }
    }

    /// The same of a command of which these parts failed.
    pub fn but_all(self, failures: Vec<Failure>) -> Answer {
        Answer { failure: Failure::of_all(failures), ..self }
    }

    /// The same with a note for whoever reads the JSON.
    pub fn with_note(self, note: Option<String>) -> Answer {
        Answer { note, ..self }
    }

    /// What failed, if a part did.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// Writes it. A reader that has gone away (`| head`) is no failure; a full disk is one.
    pub fn print(&self, output: Output) -> Result<(), Failure> {
        if let (Output::Json, Some(note)) = (output, &self.note) {
            eprintln!("note: {note}");
        }
        let mut out = std::io::stdout().lock();
        let written = match output {
            Output::Text => out.write_all(&self.text),
            Output::Json => write_json(&mut out, &self.json),
        };
        match written.and_then(|()| out.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Failure::new(FailureKind::Local, format!("cannot write the answer: {error}")))
            }
            _ => Ok(()),
        }
    }
}

/// Prints a failure on standard error, in the form that the answer would have had.
pub fn print_failure(failure: &Failure, output: Output) {
    match output {
        Output::Text => eprintln!("{failure}"),
        Output::Json => eprintln!("{}", failure.json()),
    }
}

/// Writes one JSON value. Its objects, if it has any, stand on a line each: whoever reads them can take one at a time.
fn write_json(out: &mut impl Write, json: &Value) -> std::io::Result<()> {
    let Some(fields) = json.as_object().filter(|_| json["objects"].is_array()) else {
        return writeln!(out, "{json}");
    };
    for (index, (name, value)) in fields.iter().enumerate() {
        write!(out, "{}{}:", if index == 0 { "{" } else { "," }, Value::from(name.as_str()))?;
        match value.as_array().filter(|objects| name == "objects" && !objects.is_empty()) {
            None => write!(out, "{value}")?,
            Some(objects) => {
                for (index, object) in objects.iter().enumerate() {
                    write!(out, "{}\n{object}", if index == 0 { "[" } else { "," })?;
                }
                write!(out, "\n]")?;
            }
        }
    }
    writeln!(out, "}}")
}

/// Cells that are wider do not widen the others of their column.
const CELL_WIDTH_MAX: usize = 80;

/// Rows in columns below their heads; columns of numbers are aligned to the right.
pub fn table_of(heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    columns(&iter::once(heads).chain(rows).collect::<Vec<_>>())
}

/// Rows in columns, the first row being the heads.
fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &Vec<String>, column: usize| row.get(column).map_or("", String::as_str).to_owned();
    let mut lines = vec![String::new(); rows.len()];
    for column in 0..count {
        let widths = rows.iter().map(|row| cell(row, column).width());
        let width = widths.filter(|&width| width <= CELL_WIDTH_MAX).max().unwrap_or(0);
        let right = rows.len() > 1 && rows[1..].iter().all(|row| is_number(&cell(row, column)));
        for (line, row) in lines.iter_mut().zip(rows) {
            let text = cell(row, column);
            let padding = " ".repeat(width.saturating_sub(text.width()));
            let (before, behind) = if right { (padding, String::new()) } else { (String::new(), padding) };
            line.push_str(if column == 0 { "" } else { "  " });
            [before, text, behind].iter().for_each(|piece| line.push_str(piece));
        }
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A number with a comma between thousands.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A moment in milliseconds since the Unix epoch, as UTC: `2026-01-31 12:00:00.000`.
pub fn moment(at_ms: u64) -> String {
    let moment = i64::try_from(at_ms).ok().and_then(|at_ms| Timestamp::from_millisecond(at_ms).ok());
    // Beyond the year 9999 there is no date.
    moment
        .map_or_else(|| format!("{at_ms} ms"), |moment| moment.strftime("%Y-%m-%d %H:%M:%S%.3f").to_string())
}

fn is_number(text: &str) -> bool {
    text.is_empty()
        || text == "-"
        || text == "unlimited"
        || text.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{columns, moment, thousands, write_json};
    use serde_json::{Value, json};

    #[test]
    fn objects_stand_on_a_line_each_of_one_json_value() {
        for (value, lines) in [
            (json!({ "table": "t", "objects": [{ "key": "a" }, { "key": "b" }], "cursor": null }), 4),
            (json!({ "objects": [{ "key": "a" }] }), 3),
            (json!({ "objects": [], "cursor": "ff" }), 1),
            (json!({ "objects": 7 }), 1),
            (json!(["objects"]), 1),
        ] {
            let mut written = Vec::new();
            write_json(&mut written, &value).unwrap();
            assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), value);
            assert_eq!(written.iter().filter(|byte| **byte == b'\n').count(), lines, "{value}");
        }
    }

    #[test]
    fn moments_are_dates_of_the_calendar() {
        for (at_ms, text) in [
            (0, "1970-01-01 00:00:00.000"),
            (951_782_399_999, "2000-02-28 23:59:59.999"),
            (951_782_400_000, "2000-02-29 00:00:00.000"),
            (1_709_251_200_000, "2024-03-01 00:00:00.000"),
            (4_107_542_400_000, "2100-03-01 00:00:00.000"),
            (u64::MAX, "18446744073709551615 ms"),
        ] {
            assert_eq!(moment(at_ms), text);
        }
    }

    #[test]
    fn a_very_wide_cell_is_shown_whole_and_widens_no_other() {
        let wide = "x".repeat(70_000);
        let rows = [["key", "n"], [&wide, "1"], ["a", "2"]].map(|row| row.map(String::from).to_vec());
        assert_eq!(columns(&rows), format!("key  n\n{wide}  1\na    2\n"));
    }

    #[test]
    fn numbers_stand_right_and_words_left() {
        let rows = [["name", "count"], ["a", "5"], ["long name", "1,000"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&rows), "name       count\na              5\nlong name  1,000\n");
        assert_eq!(columns(&[]), "");
    }

    #[test]
    fn wide_characters_count_for_the_columns_that_they_take() {
        let rows = [["名前", "n"], ["e\u{301}", "1"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&rows), "名前  n\ne\u{301}     1\n");
    }

    #[test]
    fn thousands_are_parted_by_commas() {
        let texts = [0, 999, 1_000, 123_456, 1_234_567].map(thousands);
        assert_eq!(texts, ["0", "999", "1,000", "123,456", "1,234,567"]);
    }
}
