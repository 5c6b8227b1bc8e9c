//! Tests of accepted sources, of the removal of unit tests, and of the places of refusals. The holes are in
//! `tests/holes`.

use super::check;
use crate::Checked;
use crate::Mode;
use crate::Package;
use crate::refusal::listing;

const HEAD: &str =
    "#![no_std]\nuse sandstorm::{Args, Db, Error, Reply};\nsandstorm::extension! { read run }\n";
const RUN: &str =
    "async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }\n";

fn verdict(text: &str) -> Result<Checked, String> {
    let manifest = b"[package]\nname = \"hello\"\n".to_vec();
    let files = vec![("Cargo.toml".into(), manifest), ("src/lib.rs".into(), text.as_bytes().to_vec())];
    check(&Package::new("hello", files).unwrap()).map_err(|refusals| listing(&refusals))
}

fn compiled(text: &str) -> String {
    let mut checked = verdict(text).unwrap();
    checked.sources.remove(0).files.remove(0).1
}

#[test]
fn unit_tests_are_cut_out_before_anything_looks_at_them() {
    let tests = "#[cfg(test)]\nmod tests { extern crate std; static X: u8 = 0; fn f() { unsafe {} } }\n";
    let text = compiled(&format!("{HEAD}{RUN}{tests}pub struct After;\n"));
    assert!(!text.contains("unsafe") && !text.contains("tests"), "{text}");
    assert_eq!(text.lines().position(|line| line == "pub struct After;"), Some(6), "{text}");
    assert!(!compiled(&format!("{HEAD}{RUN}#[cfg(test)]\nmod tests;\n")).contains("mod"));
}

#[test]
fn what_only_looks_like_unit_tests_is_refused() {
    for text in [
        "#[cfg(test)]\nfn f() { unsafe {} }",
        "#[cfg(test)]\n#[path = \"/x\"]\nmod tests;",
        "#[cfg(not(test))]\nmod tests {}",
        "#[cfg(test, x)]\nmod tests {}",
        "#![cfg(test)]",
        "mod a {\n#[cfg(test)]\nmod tests {}\n}",
        "#[cfg_attr(test, x)]\nmod tests {}",
    ] {
        let refusals = verdict(&format!("{HEAD}{RUN}{text}\n")).expect_err(text);
        assert!(refusals.starts_with("src/lib.rs:"), "{refusals}");
    }
}

#[test]
fn the_function_list_gives_names_modes_and_docs() {
    let text = format!(
        "#![no_std]\nuse sandstorm::{{Args, Db, Error, Reply}};\n\
         sandstorm::extension! {{ read run, write other, }}\n/// First.\n///\n/// Second \"part\".\n{RUN}\
         /** Other. */\n{}",
        RUN.replace("run", "other")
    );
    let functions = verdict(&text).unwrap().functions;
    assert_eq!((&*functions[0].name, functions[0].mode), ("run", Mode::Read));
    assert_eq!(functions[0].doc, "First.\n\nSecond \"part\".");
    assert_eq!(
        (&*functions[1].name, functions[1].mode, &*functions[1].doc),
        ("other", Mode::Write, "Other.")
    );
}

#[test]
fn places_count_characters_from_one_and_survive_a_byte_order_mark() {
    let text = format!("\u{feff}{HEAD}{RUN}/* ßß */ static X: u8 = 0;\n");
    assert!(verdict(&text).unwrap_err().starts_with("src/lib.rs:5:10: a static"));
    let crlf = format!("{HEAD}{RUN}\nstatic X: u8 = 0;").replace('\n', "\r\n");
    assert!(verdict(&crlf).unwrap_err().starts_with("src/lib.rs:6:1: a static"));
}

#[test]
fn every_refusal_is_reported_up_to_the_limit() {
    let text = format!("{HEAD}{RUN}{}", "static X: u8 = 0;\n".repeat(500));
    let refusals = verdict(&text).unwrap_err();
    assert_eq!(refusals.lines().count(), crate::limits::REFUSALS_MAX);
}

#[test]
fn long_but_ordinary_sources_pass() {
    let functions: String =
        (0..1_000).map(|at| format!("pub fn f{at}(x: u32) -> u32 {{ x + {at} }}\n")).collect();
    let table = format!("pub const TABLE: [u32; 5000] = [{}];\n", "1, ".repeat(5_000));
    let arms: String = (0..500).map(|at| format!("{at} => {{ 1 }}\n")).collect();
    let long = format!("pub fn g(x: u32) -> u32 {{ match x {{ {arms} _ => 0 }} }}\n");
    verdict(&format!("{HEAD}{RUN}{functions}{table}{long}")).unwrap();
}

#[test]
fn an_artefact_is_named_by_every_file_of_the_rules() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/check");
    let names =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let there: std::collections::BTreeSet<String> = names.filter(|name| name != "tests.rs").collect();
    assert_eq!(there, super::RULES.iter().map(|(name, _)| name.to_string()).collect());
}
