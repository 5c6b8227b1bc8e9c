//! The Prometheus text format: families with HELP and TYPE, samples with labels, emitted in chunks.
//!
//! ```text
//!   # HELP splinter_core_gets_total Gets.
//!   # TYPE splinter_core_gets_total counter
//!   splinter_core_gets_total{core="0"} 17
//! ```
//! Prometheus requires all samples of a family together, each line terminated, label values escaped. Version 0.0.4:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::fmt::Write;
use std::io;

use crate::limits::METRICS_CHUNK_BYTES;

/// The kind of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only grows while the server runs.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Quantiles, a sum and a count.
    Summary,
}

/// Labels of a sample.
pub(super) type Labels<'l> = &'l [(&'l str, &'l str)];

/// Metrics text under construction; `W` receives its chunks.
pub(super) struct MetricsText<W> {
    out: W,
    pending: String,
    family: String,
}

impl<W: FnMut(&[u8]) -> io::Result<()>> MetricsText<W> {
    /// Creates an empty text.
    pub(super) fn new(out: W) -> Self {
        Self { out, pending: String::with_capacity(METRICS_CHUNK_BYTES + 4096), family: String::new() }
    }

    /// Begins a family; the following samples belong to it.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str) -> io::Result<()> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Summary => "summary",
        };
        self.family.clear();
        self.family.push_str(name);
        let _ = write!(self.pending, "# HELP {name} ");
        escape(&mut self.pending, help, false);
        let _ = write!(self.pending, "\n# TYPE {name} {kind}\n");
        self.hand_on(METRICS_CHUNK_BYTES)
    }

    /// Writes a sample of the family.
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: u64) -> io::Result<()> {
        self.part(labels, "", value)
    }

    /// Writes a sample of the family's name with a suffix.
    pub(super) fn part(&mut self, labels: Labels<'_>, suffix: &str, value: u64) -> io::Result<()> {
        self.head(labels, suffix);
        let _ = writeln!(self.pending, " {value}");
        self.hand_on(METRICS_CHUNK_BYTES)
    }

    /// Writes a sample in seconds, given in nanoseconds, of the family's name with a suffix.
    pub(super) fn seconds(&mut self, labels: Labels<'_>, suffix: &str, ns: u64) -> io::Result<()> {
        const NS: u64 = 1_000_000_000;
        self.head(labels, suffix);
        let _ = writeln!(self.pending, " {}.{:09}", ns / NS, ns % NS);
        self.hand_on(METRICS_CHUNK_BYTES)
    }

    /// Emits the remaining text.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.hand_on(1)
    }

    fn head(&mut self, labels: Labels<'_>, suffix: &str) {
        self.pending.push_str(&self.family);
        self.pending.push_str(suffix);
        for (index, (name, value)) in labels.iter().enumerate() {
            self.pending.push(if index == 0 { '{' } else { ',' });
            self.pending.push_str(name);
            self.pending.push_str("=\"");
            escape(&mut self.pending, value, true);
            self.pending.push('"');
        }
        if !labels.is_empty() {
            self.pending.push('}');
        }
    }

    fn hand_on(&mut self, bytes_min: usize) -> io::Result<()> {
        if self.pending.len() >= bytes_min {
            (self.out)(self.pending.as_bytes())?;
            self.pending.clear();
        }
        Ok(())
    }
}

/// Appends text with backslashes and line feeds escaped, and in label values also quotes.
fn escape(to: &mut String, text: &str, is_value: bool) {
    for letter in text.chars() {
        match letter {
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '"' if is_value => to.push_str("\\\""),
            letter => to.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, MetricsText};
    use crate::limits::METRICS_CHUNK_BYTES;

    fn written(
        write: impl FnOnce(&mut MetricsText<&mut dyn FnMut(&[u8]) -> std::io::Result<()>>),
    ) -> Vec<String> {
        let mut chunks = Vec::new();
        let mut keep = |chunk: &[u8]| {
            chunks.push(String::from_utf8(chunk.to_vec()).expect("text"));
            Ok(())
        };
        let mut text = MetricsText::new(&mut keep as &mut dyn FnMut(&[u8]) -> std::io::Result<()>);
        write(&mut text);
        text.end().expect("memory takes all");
        chunks
    }

    #[test]
    fn names_that_would_break_a_line_are_escaped() {
        let chunks = written(|text| {
            text.family("a_total", Kind::Counter, "One \"line\"\nor \\ two.").expect("memory");
            text.sample(&[("tenant", "a\"b\\c\nd"), ("core", "0")], 7).expect("memory");
            text.seconds(&[], "_sum", 1_500_000_000).expect("memory");
        });
        let expected = "# HELP a_total One \"line\"\\nor \\\\ two.\n# TYPE a_total counter\n\
                        a_total{tenant=\"a\\\"b\\\\c\\nd\",core=\"0\"} 7\na_total_sum 1.500000000\n";
        assert_eq!(chunks, [expected]);
    }

    #[test]
    fn much_text_leaves_in_chunks() {
        let chunks = written(|text| {
            text.family("a", Kind::Gauge, "Many.").expect("memory");
            for number in 0..20_000 {
                text.sample(&[("tenant", &number.to_string())], number).expect("memory");
            }
        });
        assert!(chunks.len() > 2 && chunks.iter().all(|chunk| chunk.len() < METRICS_CHUNK_BYTES + 4096));
        assert_eq!(chunks.concat().lines().count(), 20_002);
    }
}
