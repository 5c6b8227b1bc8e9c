//! The embedded source of the SDK: compiled for artefacts, and vendored into new extensions.
//!
//! Server, unit tests and artefacts all use this text; its hash is part of every artefact's name.

/// The files of the crate `sandstorm`, by path within its `src` folder.
pub(crate) const FILES: [(&str, &str); 17] = [
    ("abi.rs", include_str!("../../sandstorm/src/abi.rs")),
    ("abi/wasm32.rs", include_str!("../../sandstorm/src/abi/wasm32.rs")),
    ("access.rs", include_str!("../../sandstorm/src/access.rs")),
    ("args.rs", include_str!("../../sandstorm/src/args.rs")),
    ("db.rs", include_str!("../../sandstorm/src/db.rs")),
    ("entry.rs", include_str!("../../sandstorm/src/entry.rs")),
    ("enumerate.rs", include_str!("../../sandstorm/src/enumerate.rs")),
    ("error.rs", include_str!("../../sandstorm/src/error.rs")),
    ("lib.rs", include_str!("../../sandstorm/src/lib.rs")),
    ("operation.rs", include_str!("../../sandstorm/src/operation.rs")),
    ("page.rs", include_str!("../../sandstorm/src/page.rs")),
    ("record.rs", include_str!("../../sandstorm/src/record.rs")),
    ("reply.rs", include_str!("../../sandstorm/src/reply.rs")),
    ("scan.rs", include_str!("../../sandstorm/src/scan.rs")),
    ("testing.rs", include_str!("../../sandstorm/src/testing.rs")),
    ("testing/enumeration.rs", include_str!("../../sandstorm/src/testing/enumeration.rs")),
    ("testing/host.rs", include_str!("../../sandstorm/src/testing/host.rs")),
];

/// The manifest of the vendored SDK, because the crate's own depends on a workspace around it.
pub(crate) const MANIFEST: &str = "\
[package]
name = \"sandstorm\"
description = \"What the author of an extension sees: Db, arguments, reply, errors\"
version = \"0.1.0\"
edition = \"2024\"
rust-version = \"1.95\"
license = \"Apache-2.0 OR MIT\"
publish = false

[features]
# The in-memory Db for unit tests of extensions.
testing = []
";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::FILES;

    fn collect(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => collect(&entry.path(), &format!("{name}/"), found),
                false => assert!(found.insert(name)),
            }
        }
    }

    #[test]
    fn every_source_of_the_sdk_is_carried_but_its_tests() {
        let mut found = BTreeSet::new();
        collect(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../sandstorm/src")), "", &mut found);
        found.retain(|name| !name.ends_with("tests.rs"));
        assert_eq!(found, FILES.iter().map(|file| file.0.to_string()).collect());
    }
}
