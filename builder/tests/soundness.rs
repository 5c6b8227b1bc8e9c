//! The record of the compiler's soundness issues: made for the toolchain that is pinned, and in step with the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
const VERDICTS: [&str; 4] = ["refused", "inexpressible", "fixed", "open"];

struct Row {
    number: String,
    verdict: String,
    by: String,
}

fn text() -> String {
    fs::read_to_string(format!("{FOLDER}/soundness.tsv")).expect("the record is there")
}

fn rows() -> Vec<Row> {
    let text = text();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let row = |line: &str| match &line.split('\t').collect::<Vec<_>>()[..] {
        [number, _, _, _, verdict, by] => {
            Row { number: number.to_string(), verdict: verdict.to_string(), by: by.to_string() }
        }
        _ => panic!("not six columns: {line}"),
    };
    lines.map(row).collect()
}

/// What stands behind a name in the head.
fn head(name: &str) -> String {
    let text = text();
    let found = text.lines().find_map(|line| line.strip_prefix(&format!("# {name}: ")).map(str::to_string));
    found.unwrap_or_else(|| panic!("the head says nothing of {name}"))
}

/// With another toolchain the record has to be made anew: which issues there are, which of them its flags and the rules of
/// the check keep off.
#[test]
fn the_record_is_of_the_toolchain_that_builds_extensions() {
    let output = Command::new("rustc").arg("--version").current_dir(FOLDER).output().expect("rustc");
    let version = String::from_utf8_lossy(&output.stdout).trim().to_string();
    assert_eq!(head("Toolchain"), version, "go through the soundness issues of this toolchain first");
    assert!(!head("Date").is_empty() && !head("Query").is_empty());
}

#[test]
fn every_issue_has_a_verdict_and_every_refusal_a_source() {
    let rows = rows();
    for Row { number, verdict, by } in &rows {
        let digits = number.strip_prefix("llvm-").unwrap_or(number);
        assert!(digits.parse::<u32>().is_ok() && VERDICTS.contains(&&**verdict), "{number} {verdict}");
        assert!(!by.is_empty(), "{number}");
        if verdict == "refused" {
            for source in by.split(',') {
                let path = if source.contains('/') { source.into() } else { format!("holes/{source}") };
                assert!(Path::new(&format!("{FOLDER}/{path}.rs")).is_file(), "{number}: {path}");
            }
        }
    }
    let numbers: BTreeSet<_> = rows.iter().map(|row| &row.number).collect();
    assert_eq!(numbers.len(), rows.len(), "an issue stands there once");
    let counts = VERDICTS
        .map(|verdict| format!("{verdict} {}", rows.iter().filter(|row| row.verdict == verdict).count()));
    assert_eq!(head("Rows"), format!("{}; {}", rows.len(), counts.join(", ")));
}

#[test]
fn every_source_of_an_issue_is_in_the_record() {
    let numbers: BTreeSet<_> = rows().into_iter().map(|row| row.number).collect();
    for folder in ["holes", "mir"] {
        for entry in fs::read_dir(format!("{FOLDER}/{folder}")).expect("the sources are there") {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            let number = name.strip_prefix("rustc_").map(|rest| rest.split(['_', '.']).next().unwrap_or(""));
            assert!(
                number.is_none_or(|number| numbers.contains(number)),
                "{name} is of no issue in the record"
            );
        }
    }
}
