//! The log lines that a tenant's extensions write: the last 64 KiB of them, older ones dropped and counted.
//!
//! Workers append, control threads copy out. A worker never waits for the lock: a line that would have to
//! is dropped and counted as well, so a reader slows nobody down.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::limits::{EXTENSION_LOG_BYTES, EXTENSION_LOG_LINE_BYTES_MAX};

/// Bytes of a line before its text: length u16, level u8, extension u32, time u64.
const HEAD_BYTES: usize = 15;

/// A line as it is read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// 0 error, 1 warning, 2 information, 3 debug.
    pub level: u8,
    /// The extension that wrote it.
    pub extension: u32,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// What it wrote.
    pub text: String,
}

/// The lines of one tenant.
#[derive(Debug)]
pub struct ExtensionLog {
    ring: Mutex<VecDeque<u8>>,
    dropped: AtomicU64,
}

impl ExtensionLog {
    /// An empty log; takes its memory with the first line.
    #[must_use]
    pub const fn new() -> Self {
        Self { ring: Mutex::new(VecDeque::new()), dropped: AtomicU64::new(0) }
    }

    /// Appends a line, cut to [`EXTENSION_LOG_LINE_BYTES_MAX`]. Never waits; allocates with the first line
    /// alone.
    pub fn append(&self, level: u8, extension: u32, at_ms: u64, text: &[u8]) {
        let Ok(mut ring) = self.ring.try_lock() else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if ring.capacity() == 0 {
            ring.reserve_exact(EXTENSION_LOG_BYTES);
        }
        let text = &text[..text.len().min(EXTENSION_LOG_LINE_BYTES_MAX)];
        while ring.len() + HEAD_BYTES + text.len() > EXTENSION_LOG_BYTES {
            drop_oldest(&mut ring);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        ring.extend((text.len() as u16).to_le_bytes());
        ring.push_back(level);
        ring.extend(extension.to_le_bytes());
        ring.extend(at_ms.to_le_bytes());
        ring.extend(text);
    }

    /// All lines that are kept, oldest first.
    #[must_use]
    pub fn lines(&self) -> Vec<LogLine> {
        let bytes = {
            let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
            ring.iter().copied().collect::<Vec<u8>>()
        };
        let mut rest = bytes.as_slice();
        let mut lines = Vec::new();
        while let Some((line, behind)) = decode(rest) {
            lines.push(line);
            rest = behind;
        }
        lines
    }

    /// Lines that were dropped since the start.
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

fn drop_oldest(ring: &mut VecDeque<u8>) {
    let bytes = u16::from_le_bytes([ring[0], ring[1]]) as usize;
    ring.drain(..HEAD_BYTES + bytes);
}

fn decode(bytes: &[u8]) -> Option<(LogLine, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (level, rest) = rest.split_first()?;
    let (extension, rest) = rest.split_first_chunk()?;
    let (at_ms, rest) = rest.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(u16::from_le_bytes(*length) as usize)?;
    let line = LogLine {
        level: *level,
        extension: u32::from_le_bytes(*extension),
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
        log.append(2, 7, 1000, b"hello");
        log.append(0, 8, 1001, b"");
        log.append(9, 8, 1002, &[b'x'; 100_000]);
        let lines = log.lines();
        assert_eq!(
            (lines[0].text.as_str(), lines[0].extension, lines[0].at_ms, lines[0].level),
            ("hello", 7, 1000, 2)
        );
        assert_eq!(lines[1].text, "");
        assert_eq!(lines[2].text.len(), EXTENSION_LOG_LINE_BYTES_MAX);
        assert_eq!((lines.len(), log.dropped()), (3, 0));
    }

    #[test]
    fn a_flood_keeps_the_newest_lines_and_counts_the_rest() {
        let log = ExtensionLog::new();
        let count = 10_000;
        for number in 0..count {
            log.append(3, 1, number, format!("line {number}").as_bytes());
        }
        let lines = log.lines();
        assert_eq!(lines.last().map(|line| line.text.clone()), Some(format!("line {}", count - 1)));
        assert!(lines.windows(2).all(|pair| pair[0].at_ms + 1 == pair[1].at_ms));
        assert_eq!(log.dropped(), count - lines.len() as u64);
        assert!(lines.len() * 20 <= EXTENSION_LOG_BYTES + 20);
    }
}
