//! Finished modules that no server takes: what they hold, how large they are, how they are packed and named.
//!
//! Each is refused with a reason, within the limits of the sandbox, and leaves no file behind; the tests of `builder` try
//! more of them in their own process.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use client::{PackageFile, Status};
use tests::effort::rounds;

use super::latency::Latency;
use super::modules::{TOOLS, install, limit, list, send};
use super::stage::{Stage, refusal};
use super::victim::Victim;

/// A module with a function `run_f`, and more.
fn module(more: &str) -> Vec<u8> {
    let text = format!(
        "(module (memory (export \"memory\") 256 256) (global (export \"__heap_base\") i32 (i32.const 70000))
            (func (export \"run_f\") (param i32) (result i64) (i64.const 0)) {more})"
    );
    wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"))
}

/// A module of these parts, with a function `run_f`.
fn parts(parts: &str) -> Vec<u8> {
    let run = "(func (export \"run_f\") (param i32) (result i64) (i64.const 0))";
    let text = format!("(module {parts} {run})");
    wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"))
}

fn only_f() -> String {
    list(["f"].into_iter())
}

/// Parts of modules that no server has or runs, and why.
fn refused() -> Vec<(Vec<u8>, &'static str)> {
    let heap_base = "(global (export \"__heap_base\") i32 (i32.const 65536))";
    let memory = "(memory (export \"memory\") 256 256)";
    let takes = "(param i32 i32 i32) local.get 0 local.get 1 local.get 2";
    vec![
        (module("(func $s) (start $s)"), "has a start function"),
        (parts(&format!("(import \"env\" \"abort\" (func)) {memory} {heap_base}")), "which no server has"),
        (
            parts(&format!("(import \"splinter\" \"exec\" (func)) {memory} {heap_base}")),
            "which no server has",
        ),
        (parts(&format!("(import \"splinter\" \"get\" (func)) {memory} {heap_base}")), "another type"),
        (parts(&format!("(import \"splinter\" \"memory\" (memory 256 256)) {heap_base}")), "not a function"),
        (parts(heap_base), "no memory"),
        (parts(&format!("(memory (export \"memory\") 256) {heap_base}")), "exactly 256 pages"),
        (parts(&format!("(memory (export \"memory\") 256 65536) {heap_base}")), "exactly 256 pages"),
        (parts(&format!("{memory} (global (export \"__heap_base\") i32 (i32.const -4))")), "not from"),
        (module("(memory 1 1)"), "2 memories"),
        (module("(table (export \"t\") 1 1 funcref)"), "exports \"t\""),
        (module("(table 10001 10001 funcref)"), "10001 elements"),
        (module("(table 1 1 funcref) (func $g) (elem (i32.const 1) $g)"), "elements beyond its table"),
        (module("(table 1 1 funcref) (func $g) (elem (i32.const -1) $g $g)"), "elements beyond its table"),
        (module("(data (i32.const 65535) \"a\")"), "data outside of 65536"),
        (module("(data (i32.const 69999) \"ab\")"), "data outside of 65536"),
        (module("(data (i32.const -1) \"ab\")"), "data outside of 65536"),
        (module("(data \"passive\")"), "not placed in its memory"),
        (module(&format!("(func {takes} memory.copy)")), "memory.copy"),
        (module(&format!("(func {takes} memory.fill)")), "memory.fill"),
        (module("(table $t 1 1 funcref) (func (table.set $t (i32.const 0) (ref.null func)))"), "reference"),
        (module("(func (drop (i32.atomic.load (i32.const 0))))"), "threads"),
        (module("(func return_call 0)"), "tail calls"),
        (module("(func (export \"run_g\") (param i32) (result i64) (i64.const 0))"), "not listed"),
        (module("(func (result i32) (i64.const 0))"), "type mismatch"),
        (module(&"(func)".repeat(10_000)), "functions; 10000"),
        (module(&format!("(func {})", "(drop (i32.const 1000000))".repeat(20_000))), "bytes in a function"),
        (module(&format!("(func (local{}))", " i64".repeat(2_000))), "2000 locals"),
        (module(&"(global i32 (i32.const 7))".repeat(1_000)), "1001 globals"),
        (module(&"(data (i32.const 65536) \"a\")".repeat(20_000)), "segments of data; 1000"),
        (module("")[..40].to_vec(), "cannot be read"),
        (b"\0asm\x0d\0\x01\0".to_vec(), ""),
        (Vec::new(), "cannot be read"),
    ]
}

#[test]
fn modules_that_no_server_runs_are_refused_with_the_reason() {
    let mut stage = Stage::new();
    let mut victim = Victim::begin(&stage.server);
    for (bytes, expected) in refused() {
        for _ in 0..rounds(1, 5) {
            let (status, text) = refusal(send(&mut stage.client, "refused", &bytes, &only_f()));
            assert_eq!(status, Status::SourceRefused, "{expected}: {text}");
            assert!(text.contains(expected) && text.len() < 4_000, "{expected}: {text}");
        }
        victim.is_well();
    }
    assert_eq!(stage.client.extension_list().expect("an answer").len(), 1, "misbehave alone");
    victim.ends_well();
    stage.ends_unharmed();
}

/// The files below a folder whose names end with one of these.
fn files(folder: &Path, ends: &[&str], found: &mut Vec<Vec<u8>>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, ends, found);
        } else if ends.iter().any(|end| path.to_string_lossy().ends_with(end)) {
            found.push(fs::read(path).expect("a file"));
        }
    }
}

#[test]
fn machine_code_is_no_package_whatever_it_is_called() {
    let mut stage = Stage::new();
    install(&mut stage.client, "tools", TOOLS);
    let mut code = Vec::new();
    files(&stage.server.directory().join("extensions"), &[".cwasm"], &mut code);
    files(&stage.server.directory().join("extensions"), &[".so"], &mut code);
    assert!(code.len() >= 2, "the server's own artefacts are found");
    // A message carries no more than a package may have.
    code.retain(|bytes| bytes.len() < 1 << 20);
    code.push(fs::read("/bin/true").expect("a program"));
    for bytes in &code {
        let (status, text) = refusal(send(&mut stage.client, "code", bytes, &only_f()));
        assert_eq!(status, Status::SourceRefused, "{text}");
        for path in ["code.cwasm", "module.cwasm", "src/lib.so", "src/lib.rs"] {
            let manifest = "[package]\nname = \"code\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
            let files = vec![
                PackageFile { path: "Cargo.toml", bytes: manifest.as_bytes() },
                PackageFile { path, bytes },
            ];
            let (status, text) = refusal(stage.client.extension_install("code", files));
            assert_eq!(status, Status::SourceRefused, "{path}: {text}");
        }
        stage.neighbours.are_well();
    }
    assert_eq!(stage.client.extension_list().expect("an answer").len(), 2, "misbehave and tools");
    stage.ends_unharmed();
}

/// Names that lead out of a folder, or are none.
const NAMES: [&str; 10] = [
    "../escaped",
    "../../escaped",
    "/tmp/escaped",
    "src/../../escaped",
    "escaped/../escaped",
    ".",
    "..",
    "",
    "escaped\0",
    "escaped\n",
];

#[test]
fn names_that_lead_elsewhere_are_refused_and_make_no_file() {
    let mut stage = Stage::new();
    let (bytes, list) = (module(""), only_f());
    let taken = [Status::SourceRefused, Status::NameInvalid, Status::Malformed];
    for name in NAMES.into_iter().chain([&*"escaped".repeat(20_000)]) {
        let shown = &name[..name.len().min(40)];
        let mut refused = |what: &str, extension: &str, files: &[(&str, &[u8])]| {
            let files = files.iter().map(|(path, bytes)| PackageFile { path, bytes }).collect();
            let (status, text) = refusal(stage.client.extension_install(extension, files));
            assert!(taken.contains(&status), "{what} {shown:?}: {status:?} {text}");
        };
        let function = list.replace("\"f\"", &format!("{name:?}").replace("\\0", "\\u0000"));
        let good = [("module.wasm", &bytes[..]), ("functions.toml", list.as_bytes())];
        refused("an extension", name, &good);
        refused("a function", "named", &[good[0], ("functions.toml", function.as_bytes())]);
        refused("a further file", "named", &[good[0], good[1], (name, &bytes)]);
        refused("a module", "named", &[(name, &bytes), good[1]]);
        refused("a source", "named", &[("Cargo.toml", b"[package]"), ("src/lib.rs", b""), (name, b"")]);
        refused("a module below", "named", &[(&format!("{name}/module.wasm"), &bytes), good[1]]);
    }
    assert_eq!(stage.client.extension_list().expect("an answer").len(), 1, "misbehave alone");
    let mut found = Vec::new();
    files(stage.server.directory(), &["escaped", "escaped.cwasm"], &mut found);
    assert!(found.is_empty() && !Path::new("/tmp/escaped").exists(), "a file was made elsewhere");
    assert!(!stage.server.directory().with_file_name("escaped").exists());
    stage.ends_unharmed();
}

/// So many functions, each with so many operations, that call each other.
fn many(functions: usize, operations: usize) -> Vec<u8> {
    let mut text = String::new();
    for number in 0..functions {
        let next = (number + 1) % functions;
        let work = "(local.set 0 (i64.mul (local.get 0) (i64.const 6364136223846793005)))".repeat(operations);
        let call = format!("(if (i64.eqz (local.get 0)) (then (drop (call $f{next} (local.get 0)))))");
        let _ = write!(text, "(func $f{number} (param i64) (result i64) {work} {call} (local.get 0))");
    }
    module(&text)
}

/// A function with many locals and nested branch tables, which are the most work for a compiler.
fn tables(locals: usize, tables: usize, targets: usize) -> Vec<u8> {
    let mut body = format!("(func (param i32) (local{}) {}", " i64".repeat(locals), "(block ".repeat(tables));
    for table in 0..tables {
        let labels = (0..targets).map(|target| format!(" {}", target % (tables - table))).collect::<String>();
        let (local, other) = (1 + table % locals, 1 + (table * 7) % locals);
        let _ = write!(
            body,
            "(local.set {local} (i64.add (local.get {local}) (local.get {other})))
                (br_table{labels} (local.get 0)))"
        );
    }
    module(&(body + ")"))
}

#[test]
fn modules_that_keep_the_compiler_busy_end_within_its_limits_while_others_are_served() {
    let mut stage = Stage::new();
    limit(&stage.server, "mallory", &[("compile_ms_per_minute", 600_000)]);
    let mut victim = Victim::begin(&stage.server);
    for (name, bytes) in [
        ("9,000 functions", many(9_000, 1)),
        ("5,000 functions of 20 operations", many(5_000, 20)),
        ("100 tables of 20 targets", tables(499, 100, 20)),
        ("1,500 blocks", module(&format!("(func {}{})", "(block ".repeat(1_500), ")".repeat(1_500)))),
    ] {
        let mut latency = Latency::default();
        match latency.of(|| send(&mut stage.client, "busy", &bytes, &only_f())) {
            Ok(_) => {
                println!("{name}: it is installed");
                stage.client.invoke("busy.f", stage.table, b"key", b"").expect("it does nothing");
            }
            error => {
                let (status, text) = refusal(error);
                println!("{name}: {status:?} {}", &text[..text.len().min(200)]);
                assert!(matches!(status, Status::SourceRefused | Status::CompileFailed), "{status:?} {text}");
            }
        }
        latency.print(name);
        victim.is_well();
        stage.neighbours.are_well();
    }
    victim.ends_well();
    stage.ends_unharmed();
}
