//! Fuzzes the check of an extension's source.
//!
//! No text makes the check panic or run for long, and every accepted source has functions.
#![no_main]

use builder::{Package, check};
use libfuzzer_sys::fuzz_target;

const MANIFEST: &[u8] = b"[package]\nname = \"fuzzed\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\nsandstorm = \"*\"\n";

fuzz_target!(|source: &[u8]| {
    let files =
        vec![("Cargo.toml".to_owned(), MANIFEST.to_vec()), ("src/lib.rs".to_owned(), source.to_vec())];
    let Ok(package) = Package::new("fuzzed", files) else { return };
    if let Ok(checked) = check(&package) {
        assert!(!checked.functions.is_empty(), "an extension without functions passed");
    }
});
