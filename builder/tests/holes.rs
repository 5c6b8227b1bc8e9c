//! Every way out of the language that is known to us, as a source that tries it.
//!
//! `holes/*.rs` each begin with the first refusal that the check must give, word by word: file, line,
//! column, what it is, what to write instead. A new hole is a new file.

use std::fs;
use std::path::Path;

use builder::Package;

const HOLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/holes");
/// There are at least so many; fewer would mean that the test does not find them.
const HOLES_MIN: usize = 202;

fn verdict(path: &Path, text: &str) -> String {
    let manifest = b"[package]\nname = \"hole\"\n".to_vec();
    let files = vec![("Cargo.toml".into(), manifest), ("src/lib.rs".into(), text.as_bytes().to_vec())];
    let package = Package::new("hole", files).unwrap_or_else(|_| panic!("{}", path.display()));
    match builder::check(&package) {
        Ok(_) => "passes".into(),
        Err(refusals) => refusals[0].to_string(),
    }
}

#[test]
fn every_hole_is_refused_at_its_place_with_a_remedy() {
    let mut wrong = Vec::new();
    let mut paths: Vec<_> = fs::read_dir(HOLES).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in &paths {
        let text = fs::read_to_string(path).unwrap();
        let expected = text.lines().next().and_then(|line| line.strip_prefix("//! refused: "));
        let expected = expected.unwrap_or_else(|| panic!("{} says nothing expected", path.display()));
        let verdict = verdict(path, &text);
        if verdict != expected {
            wrong.push(format!("{}\n  expected {expected}\n  got      {verdict}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(paths.len() >= HOLES_MIN, "{} holes", paths.len());
}
