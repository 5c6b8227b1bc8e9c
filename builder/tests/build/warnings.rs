//! What the compiler warns of: kept with the artefact, bounded, and refused where a write would be lost.

use builder::BuildError;
use builder::Package;
use builder::limits::DIAGNOSTICS_BYTES_MAX;

use crate::extension;
use crate::toolchain;

/// An extension of one function that writes.
fn writing(before: &str, body: &str) -> Package {
    extension(&format!(
        "#![no_std]\n{before}\nuse sandstorm::{{Args, Db, Error, Reply}};\nsandstorm::extension! {{ write run }}\n\
         async fn run(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {{\n{body}\n}}\n"
    ))
}

fn refusal(package: &Package) -> String {
    match toolchain().build(package) {
        Err(BuildError::CompileFailed { text }) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_must_be_used_is_not_dropped_unused_whatever_the_source_allows() {
    let forgotten = "db.put(args.table(), args.key(), b\"lost\");\nreply.u8(1)";
    for before in ["", "#![allow(warnings)]", "#![warn(unused_must_use)]", "#![deny(unused_must_use)]"] {
        let text = refusal(&writing(before, forgotten));
        assert!(text.contains("that must be used") || text.contains("incompatible"), "{before}: {text}");
    }
    for before in ["#![allow(unused)]", "#![allow(unused_must_use)]", "#![expect(unused_must_use)]"] {
        let text = refusal(&writing(before, forgotten));
        assert!(text.contains("incompatible with previous forbid"), "{before}: {text}");
    }
    let text =
        refusal(&writing("", "db.put(args.table(), args.key(), b\"\").await;\nreply.write(b\"\");\nOk(())"));
    assert!(text.contains("src/lib.rs:6:") && text.contains("src/lib.rs:7:"), "{text}");
    let on_purpose = "let _ = db.put(args.table(), args.key(), b\"\").await;\nlet _ = reply.u8(1);\nOk(())";
    assert_eq!(toolchain().build(&writing("", on_purpose)).unwrap().warnings, "");
}

#[test]
fn warnings_stay_with_an_artefact_that_is_found() {
    let package = writing("fn never_called() {}", "db.delete(args.table(), args.key()).await?;\nreply.u8(1)");
    let first = toolchain().build(&package).unwrap();
    assert!(
        first.warnings.contains("src/lib.rs:2:4") && first.warnings.contains("never_called"),
        "{}",
        first.warnings
    );
    let second = toolchain().build(&package).unwrap();
    assert!(!first.cached && second.cached);
    assert_eq!(first.warnings, second.warnings);
}

#[test]
fn a_source_that_was_installed_under_an_earlier_release_is_built_and_not_installed_anew() {
    let package = writing("", "db.put(args.table(), args.key(), b\"lost before\");\nreply.u8(2)");
    let rebuilt = toolchain().rebuild(&package).unwrap();
    assert!(rebuilt.warnings.contains("that must be used"), "{}", rebuilt.warnings);
    assert!(refusal(&package).contains("that must be used"), "though the artefact is in the cache");
    let found = toolchain().rebuild(&package).unwrap();
    assert!(found.cached && found.code == rebuilt.code && found.warnings == rebuilt.warnings);
}

#[test]
fn a_flood_of_warnings_is_cut() {
    let unused: String = (0..2_000).map(|number| format!("fn unused_{number}() {{}}\n")).collect();
    let artefact =
        toolchain().build(&writing(&unused, "db.yield_now().await;\nreply.write(args.key())")).unwrap();
    assert!(artefact.warnings.ends_with("\n..."), "{}", artefact.warnings);
    assert!((DIAGNOSTICS_BYTES_MAX / 2..=DIAGNOSTICS_BYTES_MAX + 4).contains(&artefact.warnings.len()));
}
