//! The log lines of a tenant's extensions: the last 64 KiB; older lines are dropped and counted. Also holds the traces.
//!
//! Workers append, control threads copy out. A worker never waits for the lock: a line that would have to wait is
//! dropped and counted too, so a reader slows no worker. Lines are numbered from 1 in order of arrival, so a reader can
//! continue after its last line. A log starts empty when the server starts.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::trace::Traces;
use crate::limits::{EXTENSION_LOG_BYTES, EXTENSION_LOG_LINE_BYTES_MAX};

/// Bytes of a line before its text: length u16, level u8, extension u32, version u32, time u64.
const HEAD_BYTES: usize = 19;

/// A log line as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The line's number in the log.
    pub number: u64,
    /// 0 error, 1 warning, 2 information, 3 debug.
    pub level: u8,
    /// The extension that wrote it.
    pub extension: u32,
    /// The version of that extension.
    pub version: u32,
    /// The time, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The text of the line.
    pub text: String,
}

#[derive(Debug)]
struct LogRing {
    bytes: VecDeque<u8>,
    /// The number of the oldest kept line.
    first: u64,
    /// The number of the next line.
    next: u64,
}

/// The log lines and traces of one tenant.
#[derive(Debug)]
pub struct ExtensionLog {
    ring: Mutex<LogRing>,
    dropped: AtomicU64,
    /// Traces of single invocations.
    pub traces: Traces,
}

impl ExtensionLog {
    /// Creates an empty log; it allocates with the first line.
    #[must_use]
    pub const fn new() -> Self {
        let ring = LogRing { bytes: VecDeque::new(), first: 1, next: 1 };
        Self { ring: Mutex::new(ring), dropped: AtomicU64::new(0), traces: Traces::new() }
    }

    /// Appends a line, cut to [`EXTENSION_LOG_LINE_BYTES_MAX`]. Never waits; allocates with the first line only.
    pub fn append(&self, level: u8, (extension, version): (u32, u32), at_ms: u64, text: &[u8]) {
        let Ok(mut ring) = self.ring.try_lock() else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if ring.bytes.capacity() == 0 {
            ring.bytes.reserve_exact(EXTENSION_LOG_BYTES);
        }
        let text = &text[..text.len().min(EXTENSION_LOG_LINE_BYTES_MAX)];
        while ring.bytes.len() + HEAD_BYTES + text.len() > EXTENSION_LOG_BYTES {
            ring.drop_oldest();
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        ring.next += 1;
        let bytes = &mut ring.bytes;
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.push_back(level);
        bytes.extend(extension.to_le_bytes());
        bytes.extend(version.to_le_bytes());
        bytes.extend(at_ms.to_le_bytes());
        bytes.extend(text);
    }

    /// Returns all kept lines, oldest first.
    #[must_use]
    pub fn lines(&self) -> Vec<LogLine> {
        let (bytes, mut number) = {
            let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
            (ring.bytes.iter().copied().collect::<Vec<u8>>(), ring.first)
        };
        let mut rest = bytes.as_slice();
        let mut lines = Vec::new();
        while let Some((line, behind)) = decode(rest, number) {
            lines.push(line);
            rest = behind;
            number += 1;
        }
        lines
    }

    /// Returns lines accepted by `wanted`, oldest first: the first `count` after line `after`. If `after` is 0 or
    /// beyond the end of the log, returns the newest `count`. Also returns the number of the last line examined, for
    /// the next call, and how many lines after `after` were dropped.
    #[must_use]
    pub fn lines_after(
        &self,
        after: u64,
        count: usize,
        wanted: impl Fn(&LogLine) -> bool,
    ) -> (Vec<LogLine>, u64, u64) {
        let mut lines = self.lines();
        let newest = lines.last().map_or(0, |line| line.number);
        let follows = after != 0 && after <= newest;
        let oldest = lines.first().map_or(0, |line| line.number);
        let missed = if follows { oldest.saturating_sub(after + 1) } else { 0 };
        lines.retain(|line| !follows || line.number > after);
        lines.retain(wanted);
        if !follows {
            lines.drain(..lines.len().saturating_sub(count));
            return (lines, newest, missed);
        }
        let cut = lines.len() > count;
        lines.truncate(count);
        let looked_at = if cut { lines.last().map_or(after, |line| line.number) } else { newest };
        (lines, looked_at, missed)
    }

    /// Returns the number of lines dropped since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Default for ExtensionLog {
    fn default() -> Self {
        Self::new()
    }
}

impl LogRing {
    fn drop_oldest(&mut self) {
        let bytes = u16::from_le_bytes([self.bytes[0], self.bytes[1]]) as usize;
        self.bytes.drain(..HEAD_BYTES + bytes);
        self.first += 1;
    }
}

fn decode(bytes: &[u8], number: u64) -> Option<(LogLine, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (level, rest) = rest.split_first()?;
    let (extension, rest) = rest.split_first_chunk()?;
    let (version, rest) = rest.split_first_chunk()?;
    let (at_ms, rest) = rest.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(u16::from_le_bytes(*length) as usize)?;
    let line = LogLine {
        number,
        level: *level,
        extension: u32::from_le_bytes(*extension),
        version: u32::from_le_bytes(*version),
        at_ms: u64::from_le_bytes(*at_ms),
        text: String::from_utf8_lossy(text).into_owned(),
    };
    Some((line, rest))
}

#[cfg(test)]
mod tests {
    use super::ExtensionLog;
    use crate::limits::{EXTENSION_LOG_BYTES, EXTENSION_LOG_LINE_BYTES_MAX};

    #[test]
    fn lines_come_back_in_order() {
        let log = ExtensionLog::new();
        log.append(2, (7, 4), 1000, b"hello");
        log.append(0, (8, 1), 1001, b"");
        log.append(9, (8, 1), 1002, &[b'x'; 100_000]);
        let lines = log.lines();
        assert_eq!(
            (lines[0].text.as_str(), lines[0].extension, lines[0].at_ms, lines[0].level),
            ("hello", 7, 1000, 2)
        );
        assert_eq!((lines[0].version, lines[0].number, lines[2].number), (4, 1, 3));
        assert_eq!(lines[1].text, "");
        assert_eq!(lines[2].text.len(), EXTENSION_LOG_LINE_BYTES_MAX);
        assert_eq!((lines.len(), log.dropped()), (3, 0));
    }

    #[test]
    fn a_flood_keeps_the_newest_lines_and_counts_the_rest() {
        let log = ExtensionLog::new();
        let count = 10_000;
        for number in 0..count {
            log.append(3, (1, 1), number, format!("line {number}").as_bytes());
        }
        let lines = log.lines();
        assert_eq!(lines.last().map(|line| line.text.clone()), Some(format!("line {}", count - 1)));
        assert!(lines.windows(2).all(|pair| pair[0].at_ms + 1 == pair[1].at_ms));
        assert_eq!(log.dropped(), count - lines.len() as u64);
        assert!(lines.len() * 20 <= EXTENSION_LOG_BYTES + 20);
        assert_eq!(lines[0].number, log.dropped() + 1);
        let (behind, looked_at, missed) = log.lines_after(1, 10, |_| true);
        assert_eq!((behind[0].number, missed), (lines[0].number, log.dropped() - 1));
        assert_eq!(looked_at, lines[9].number);
    }

    #[test]
    fn a_reader_goes_on_behind_the_line_that_it_has() {
        let log = ExtensionLog::new();
        assert_eq!(log.lines_after(0, 10, |_| true), (Vec::new(), 0, 0));
        for number in 0..10 {
            log.append(number % 4, (1, 1), 0, b"line");
        }
        let numbers = |after, count, level| {
            let (lines, looked_at, _) = log.lines_after(after, count, |line| line.level <= level);
            (lines.iter().map(|line| line.number).collect::<Vec<_>>(), looked_at)
        };
        assert_eq!(numbers(0, 3, 3), (vec![8, 9, 10], 10));
        assert_eq!(numbers(0, 10, 0), (vec![1, 5, 9], 10));
        assert_eq!(numbers(4, 2, 3), (vec![5, 6], 6));
        assert_eq!(numbers(9, 10, 0), (vec![], 10), "what is not wanted is not looked at twice");
        assert_eq!(numbers(10, 10, 3), (vec![], 10));
        assert_eq!(numbers(500, 2, 3), (vec![9, 10], 10), "of a server that was started anew");
    }
}
