//! A strict reader of the text format: what Prometheus tolerates but should not be sent is refused here.
//!
//! Each family comes once, with HELP, then TYPE, then its samples; names, labels and escapes are well-formed; no
//! sample comes twice; counters end in `_total` and summaries have a sum and a count.

use std::collections::BTreeMap;

/// Labels in the order of their names.
type Labels = BTreeMap<String, String>;

/// All samples by family.
#[derive(Debug, Default)]
pub struct Exposition {
    families: BTreeMap<String, Family>,
}

#[derive(Debug)]
struct Family {
    kind: String,
    /// By full name and labels.
    samples: BTreeMap<(String, Labels), f64>,
}

impl Exposition {
    /// Reads a whole text; panics at the first line that is not in order.
    pub fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line is not ended");
        let mut exposition = Self::default();
        let mut lines = text.lines();
        let mut current = None;
        while let Some(line) = lines.next() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a help has a text");
                assert!(is_name(name) && !help.is_empty(), "{line}");
                let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE ")?.strip_prefix(name));
                let kind = kind.and_then(|kind| kind.strip_prefix(' ')).expect("a type follows a help");
                assert!(["counter", "gauge", "summary"].contains(&kind), "{line}: {kind}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                let family = Family { kind: kind.to_owned(), samples: BTreeMap::new() };
                assert!(exposition.families.insert(name.to_owned(), family).is_none(), "{name} comes twice");
                current = Some(name.to_owned());
                continue;
            }
            let name = current.as_ref().expect("a sample belongs to a family");
            exposition.families.get_mut(name).expect("just now").take(name, line);
        }
        exposition
    }

    /// A sample, if it is there.
    pub fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels: Labels =
            labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let key = (name.to_owned(), labels);
        self.families.values().find_map(|family| family.samples.get(&key)).copied()
    }

    /// A sample that has to be there.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.find(name, labels).unwrap_or_else(|| panic!("no {name} {labels:?}"))
    }

    /// No counter of `before` is gone or less now.
    pub fn check_growth(&self, before: &Self) {
        for (name, family) in &before.families {
            let now = &self.families.get(name).unwrap_or_else(|| panic!("{name} is gone")).samples;
            let is_count = |sample: &str| {
                family.kind == "counter" || sample.ends_with("_sum") || sample.ends_with("_count")
            };
            for (key, value) in family.samples.iter().filter(|(key, _)| is_count(&key.0)) {
                assert!(now.get(key).is_some_and(|now| now >= value), "{key:?}");
            }
        }
    }
}

impl Family {
    fn take(&mut self, family: &str, line: &str) {
        let (name, rest) = line.split_at(line.find(['{', ' ']).expect("a value follows a name"));
        let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("`{line}` is not of {family}"));
        let suffixes: &[&str] = if self.kind == "summary" { &["", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.contains(&suffix), "{line}");
        let (labels, value) = read_labels(rest);
        let value = value.strip_prefix(' ').expect("one space before the value");
        assert!(value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'), "{line}");
        let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(self.samples.insert((name.to_owned(), labels), value).is_none(), "`{line}` comes twice");
    }
}

/// Labels in braces, if there are any, and what is behind them.
fn read_labels(text: &str) -> (Labels, &str) {
    let mut labels = Labels::new();
    let Some(mut rest) = text.strip_prefix('{') else { return (labels, text) };
    loop {
        let (name, behind) = rest.split_once("=\"").expect("a label has a value in quotes");
        assert!(is_name(name), "{text}");
        let (mut value, mut letters) = (String::new(), behind.char_indices());
        let end = loop {
            match letters.next().expect("the quotes are closed") {
                (end, '"') => break end,
                (_, '\\') => value.push(match letters.next().expect("an escape").1 {
                    'n' => '\n',
                    escaped @ ('\\' | '"') => escaped,
                    other => panic!("\\{other} in {text}"),
                }),
                (_, letter) => value.push(letter),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none(), "{text}");
        rest = &behind[end + 1..];
        match rest.strip_prefix(',') {
            Some(behind) => rest = behind,
            None => return (labels, rest.strip_prefix('}').expect("braces are closed")),
        }
    }
}

fn is_name(name: &str) -> bool {
    let mut letters = name.bytes();
    letters.next().is_some_and(|first| first.is_ascii_lowercase())
        && letters.all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'_')
}
