//! `splinter ext logs`: the log lines of an extension.
//!
//! `--follow` polls for lines after the last one that the server examined, and prints the number of lines that the
//! server dropped in between.

use super::super::failure::Failure;
use super::super::options::LogLevel;
use super::super::output::{Answer, moment};
use super::super::settings::Settings;
use client::LogEntry;
use serde_json::{Value, json};
use std::time::Duration;

/// Polling interval.
const PAUSE: Duration = Duration::from_millis(300);

/// Prints the latest lines, and with `follow` continues with new ones.
pub fn run(
    settings: &Settings,
    name: &str,
    lines: u32,
    level: LogLevel,
    follow: bool,
) -> Result<Answer, Failure> {
    let level = level as u8;
    let mut client = settings.connect()?;
    let mut found = client.extension_logs(name, level, 0, lines)?;
    if !follow {
        let text: String = found.lines.iter().map(|line| text_of(line) + "\n").collect();
        return Ok(Answer::new(text, found.lines.iter().map(value_of).collect()));
    }
    loop {
        if found.missed > 0 {
            let text = format!("... {} lines of the tenant were dropped ...", found.missed);
            Answer::new(text, json!({ "missed": found.missed })).print(settings.output())?;
        }
        for line in &found.lines {
            Answer::new(text_of(line), value_of(line)).print(settings.output())?;
        }
        std::thread::sleep(PAUSE);
        found = client.extension_logs(name, level, found.looked_at, u32::MAX)?;
    }
}

fn text_of(line: &LogEntry) -> String {
    let LogEntry { at_ms, version, text, .. } = line;
    format!("{}  {:<7}  @{version}  {}", moment(*at_ms), level_name(line.level), printable(text))
}

fn value_of(line: &LogEntry) -> Value {
    json!({
        "number": line.number, "at_ms": line.at_ms, "level": level_name(line.level), "version": line.version,
        "text": line.text,
    })
}

fn level_name(level: u8) -> &'static str {
    ["error", "warning", "info", "debug"].get(usize::from(level)).copied().unwrap_or("debug")
}

/// One line of what an extension wrote; control characters could play with the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::{text_of, value_of};
    use client::LogEntry;

    #[test]
    fn a_line_is_one_line_and_harmless() {
        let line = LogEntry { number: 1, at_ms: 0, level: 1, version: 3, text: "a\x1b[2J\nb".into() };
        assert_eq!(text_of(&line), "1970-01-01 00:00:00.000  warning  @3  a\u{fffd}[2J\u{fffd}b");
        assert_eq!(value_of(&line)["text"], "a\x1b[2J\nb");
    }
}
