//! Sources that do not become artefacts, each for its own reason.

use std::fs;
use std::path::Path;

use builder::BuildError;
use builder::Package;

use crate::extension;
use crate::toolchain;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compiler");
const MIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mir");

/// `compiler/*.rs` pass the check and are refused by the compiler; each begins with a part of its text.
#[test]
fn what_the_check_leaves_to_the_compiler_is_refused_by_it() {
    let mut count = 0;
    for entry in fs::read_dir(FOLDER).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let expected = text.lines().next().unwrap().strip_prefix("//! compiler: ").unwrap();
        match toolchain().build(&extension(&text)) {
            Err(BuildError::CompileFailed { text }) => {
                assert!(text.contains(expected), "{}:\n{text}", path.display());
                assert!(text.len() < 17 << 10);
            }
            other => panic!("{}: {other:?}", path.display()),
        }
        count += 1;
    }
    assert!(count >= 23, "{count} sources");
}

/// `mir/*.rs` pass the check of the source and are refused for what the compiler inferred; each begins with the refusal.
#[test]
fn what_no_source_shows_is_refused_in_the_mir() {
    let mut wrong = Vec::new();
    let mut paths: Vec<_> = fs::read_dir(MIR).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in &paths {
        let text = fs::read_to_string(path).unwrap();
        let expected = text.lines().next().unwrap().strip_prefix("//! refused: ").unwrap();
        assert!(builder::check(&extension(&text)).is_ok(), "{}", path.display());
        let refused = match toolchain().build(&extension(&text)) {
            Err(BuildError::Refused(refusals)) => refusals[0].to_string(),
            other => format!("{other:?}"),
        };
        if refused != expected {
            wrong.push(format!("{}\n  expected {expected}\n  got      {refused}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(paths.len() >= 8, "{} sources", paths.len());
}

/// Whether patterns are exhaustive is a logic puzzle; this one has 60 variables and 260 clauses.
#[test]
fn a_compiler_that_is_kept_busy_is_stopped() {
    let mut state = 7u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut arms = String::new();
    for _ in 0..260 {
        let mut pattern = ["_"; 60];
        for _ in 0..3 {
            pattern[next(60) as usize] = if next(2) == 0 { "true" } else { "false" };
        }
        arms.push_str(&format!("[{}] => 1,\n", pattern.join(", ")));
    }
    let text = format!(
        "#![no_std]\nuse sandstorm::{{Args, Db, Error, Reply}};\nsandstorm::extension! {{ read run }}\n\
         async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {{ Ok(()) }}\n\
         pub fn f(x: [bool; 60]) -> u8 {{ match x {{ {arms} }} }}\n"
    );
    let stopped = BuildError::TimedOut { step: "compiling hole".into() };
    assert_eq!(toolchain().build(&extension(&text)), Err(stopped));
}

/// Aliases that nest by the thousand overflow the compiler's stack.
#[test]
fn a_compiler_that_crashes_is_one_line_to_the_tenant() {
    let aliases: String = (1..11_000).map(|at| format!("type A{at}=(A{},);", at - 1)).collect();
    let text = format!(
        "#![no_std]\nuse sandstorm::{{Args, Db, Error, Reply}};\nsandstorm::extension! {{ read run }}\n\
         async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {{ Ok(()) }}\n\
         type A0 = u8;\n{aliases}\nfn f(x: A10999) -> A10999 {{ x }}\n"
    );
    let error = toolchain().build(&extension(&text)).expect_err("a crash");
    assert!(matches!(error, BuildError::CompilerCrashed { .. }), "{error}");
    let shown = error.to_string();
    assert!(shown.starts_with("compiling hole crashed (error: rustc interrupted by SIGSEGV"), "{shown}");
    assert!(shown.lines().count() == 1 && shown.len() < 400, "{shown}");
}

/// Refused in the sandbox with the same text as in the process.
#[test]
fn refusals_are_the_same_in_the_sandbox() {
    for text in
        ["", "static X: u8 = 0;", "no Rust", "\0", "#![no_std]\n#[path = \"/etc/passwd\"] mod m;", "ß"]
    {
        let package = extension(text);
        let expected = builder::check(&package).expect_err("a refusal");
        assert_eq!(toolchain().check(&package), Err(BuildError::Refused(expected)));
    }
}

#[test]
fn sources_that_nest_or_run_on_are_refused_and_crash_nothing() {
    let nested = |open: &str, close: &str, depth| open.repeat(depth) + &close.repeat(depth);
    for text in [
        nested("(", ")", 100_000),
        nested("{", "}", 100_000),
        nested("fn f() { ", "}", 10_000),
        nested("<", ">", 100_000),
        format!("type A = {};", nested("B<", ">", 60_000)),
        format!("const X: u8 = {}1;", "-".repeat(200_000)),
        format!("const X: u8 = 1{};", " + 1".repeat(50_000)),
        format!("fn f() {{ {} }}", "return ".repeat(30_000)),
        format!("fn f() {{ x{} }}", ".a()".repeat(40_000)),
        format!("fn f() {{ {} }}", "|x| ".repeat(50_000)),
        format!("fn f(x: {}u8) {{}}", "&".repeat(200_000)),
        "/*".repeat(100_000),
        "\"".repeat(99_999),
        "r#".repeat(100_000),
        "'a ".repeat(60_000),
    ] {
        let result = toolchain().check(&extension(&text));
        assert!(matches!(result, Err(BuildError::Refused(_))), "{result:?} for {:.40}", text);
    }
}

#[test]
fn dependencies_must_be_in_the_package_and_in_no_circle() {
    let source = "#![no_std]\n";
    let depends = |name: &str, on: &str| {
        format!("[package]\nname = \"{name}\"\n[dependencies]\n{on} = {{ path = \"../{on}\" }}\n")
    };
    let refusal = |files: &[(&str, &str)]| {
        let files = files.iter().map(|(path, text)| (path.to_string(), text.as_bytes().to_vec())).collect();
        let package = Package::new("hello", files).unwrap();
        match toolchain().build(&package) {
            Err(BuildError::Refused(refusals)) => refusals[0].to_string(),
            other => panic!("{other:?}"),
        }
    };
    let root = depends("hello", "a");
    let missing = refusal(&[("Cargo.toml", &root), ("src/lib.rs", source)]);
    assert!(
        missing.starts_with("deps/a/Cargo.toml: a package that is depended on is not there"),
        "{missing}"
    );
    let (a, b) = (depends("a", "b"), depends("b", "a"));
    let circle = refusal(&[
        ("Cargo.toml", &root),
        ("src/lib.rs", source),
        ("deps/a/Cargo.toml", &a),
        ("deps/a/src/lib.rs", source),
        ("deps/b/Cargo.toml", &b),
        ("deps/b/src/lib.rs", source),
    ]);
    assert!(circle.contains("depend on one another in a circle"), "{circle}");
    let stray = refusal(&[
        ("Cargo.toml", "[package]\nname = \"hello\"\n"),
        ("src/lib.rs", source),
        ("deps/a/Cargo.toml", "[package]\nname = \"a\"\n"),
    ]);
    assert!(stray.contains("a package that nothing depends on"), "{stray}");
}

#[test]
fn the_names_of_the_glues_own_crates_are_taken() {
    let source = "#![no_std]\n";
    let refusal = |name: &str, dependency: &str| {
        let manifest = format!("[package]\nname = \"{name}\"\n{dependency}");
        let files = vec![("Cargo.toml".into(), manifest.into()), ("src/lib.rs".into(), source.into())];
        let refusals = builder::check(&Package::new("hello", files).unwrap()).expect_err("a refusal");
        refusals[0].to_string()
    };
    for name in ["tenant", "splinter_artefact", "splinter-artefact", "sandstorm"] {
        assert!(refusal(name, "").starts_with("Cargo.toml:2:8: this is no name for a package"));
    }
    let dependency = refusal("hello", "[dependencies]\ntenant = { path = \"../tenant\" }\n");
    assert!(dependency.starts_with("Cargo.toml:4:1: this is no name for a package"), "{dependency}");
}

#[test]
fn a_cache_that_cannot_be_written_is_an_error_of_the_operator() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let prepared = builder::Toolchain::prepare_with_checker(file.path(), Path::new("/bin/true"));
    assert!(matches!(prepared, Err(BuildError::Io { .. })), "{prepared:?}");
}
