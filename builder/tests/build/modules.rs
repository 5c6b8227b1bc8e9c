//! The other form of an extension: what its module may be, what is refused and why, and what happens without tools.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use builder::BuildError;
use builder::ModuleCompiler;
use builder::Package;
use builder::limits::ARTEFACT_BYTES_MAX;
use builder::limits::MODULE_ATTEMPTS_MAX;
use wasmparser::Parser;
use wasmparser::Payload;

use crate::extension;
use crate::toolchain;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const IMPORTS: [&str; 12] = [
    "abandon",
    "delete",
    "enumerate",
    "get",
    "get_many",
    "increment",
    "increment_float",
    "log",
    "now_ms",
    "put",
    "scan",
    "table",
];

/// A module with a function `run_f`, and more.
fn module(more: &str) -> String {
    let memory = "(memory (export \"memory\") 256 256)";
    let heap_base = "(global (export \"__heap_base\") i32 (i32.const 70000))";
    format!("(module {memory} {heap_base} {} {more})", entry("f"))
}

fn entry(name: &str) -> String {
    format!("(func (export \"run_{name}\") (param i32) (result i64) i64.const 0)")
}

fn compile(text: &str) -> Result<Vec<u8>, BuildError> {
    toolchain().compile_module(&wat::parse_str(text).expect("a module's text"), &["f"])
}

fn refusal(text: &str) -> String {
    match compile(text) {
        Err(BuildError::ImportRefused { what }) => what,
        other => panic!("{text}: {:?}", other.map(|code| code.len())),
    }
}

#[test]
fn the_projects_own_extensions_become_modules_with_the_agreed_border() {
    let mut names: Vec<_> =
        fs::read_dir(format!("{ROOT}/ext")).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|folder| folder.join("Cargo.toml").is_file());
    names.sort();
    assert!(names.len() >= 11);
    for folder in names {
        let package = Package::from_directory(&folder).unwrap();
        let artefact = toolchain().build(&package).unwrap();
        let code = artefact.code.module().unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
        let object = artefact.code.object().unwrap();
        let portable = artefact.portable.as_ref().unwrap().read().unwrap();
        let bytes = fs::metadata(&code.path).unwrap().len() + fs::metadata(object).unwrap().len();
        assert!(artefact.bytes() == bytes + portable.len() as u64 && artefact.bytes() < 1 << 20);
        let module = toolchain().build_module(&package).unwrap();
        assert!(module == portable);
        let mut exports = BTreeSet::new();
        for payload in Parser::new(0).parse_all(&module) {
            match payload.unwrap() {
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import.unwrap();
                        assert!(import.module == "splinter" && IMPORTS.contains(&import.name));
                    }
                }
                Payload::MemorySection(section) => {
                    let memories: Vec<_> = section.into_iter().map(|memory| memory.unwrap()).collect();
                    assert_eq!(
                        (memories.len(), memories[0].initial, memories[0].maximum),
                        (1, 256, Some(256))
                    );
                }
                Payload::ExportSection(section) => {
                    exports.extend(section.into_iter().map(|export| export.unwrap().name.to_owned()));
                }
                Payload::CustomSection(_) | Payload::DataCountSection { .. } => panic!("of no use"),
                _ => {}
            }
        }
        let functions = artefact.functions.iter().map(|function| format!("run_{}", function.name));
        let wanted: BTreeSet<_> = functions.chain(["memory".into(), "__heap_base".into()]).collect();
        assert_eq!(exports, wanted);
    }
}

#[test]
fn what_no_server_has_or_runs_is_refused_with_its_reason() {
    let plain = compile(&module("")).unwrap();
    assert!(plain.len() < 100 << 10);
    for (more, expected) in [
        ("(func $s) (start $s)", "has a start function"),
        ("(memory 1 1)", "2 memories; 1 are the most"),
        ("(func (export \"f\"))", "exports \"f\", which no server uses"),
        ("(table (export \"t\") 1 1 funcref)", "exports \"t\""),
        ("(table 10001 10001 funcref)", "10001 elements in its table; 10000"),
        ("(table 1 1 funcref) (table 1 1 funcref)", "2 tables"),
        ("(table 1 1 funcref) (func $g) (elem (i32.const 1) $g)", "elements beyond its table"),
        ("(data (i32.const 65535) \"a\")", "data outside of 65536"),
        ("(data (i32.const 69999) \"ab\")", "data outside of 65536"),
        ("(data (i32.const -1) \"ab\")", "data outside of 65536"),
        ("(data \"passive\")", "not placed in its memory"),
        (
            "(func (param i32 i32 i32) local.get 0 local.get 1 local.get 2 memory.copy)",
            "memory.copy, which no signal",
        ),
        (
            "(func (param i32 i32 i32) local.get 0 local.get 1 local.get 2 memory.fill)",
            "memory.fill, which no signal",
        ),
        (
            "(func (drop (memory.grow (i32.const 1))) (drop (v128.const i32x4 0 0 0 0)) return_call 0)",
            "tail calls",
        ),
        ("(func (drop (i32.atomic.load (i32.const 0))))", "threads"),
        (
            "(func (drop (f32x4.relaxed_min (v128.const i32x4 0 0 0 0) (v128.const i32x4 0 0 0 0))))",
            "relaxed SIMD",
        ),
        ("(table $t 1 1 funcref) (func (table.set $t (i32.const 0) (ref.null func)))", "reference types"),
        ("(func (param externref))", "reference types"),
        ("(func (result i32) i64.const 0)", "type mismatch"),
        ("(global i32 (i32.add (i32.const 1) (i32.const 2)))", "constant expression"),
        ("(tag)", "exceptions"),
        ("(func (export \"run_g\") (param i32) (result i64) i64.const 0)", "functions that are not listed"),
        ("(func (export \"run_g\") (param i64) (result i64) i64.const 0)", "run_g has another type"),
    ] {
        let said = refusal(&module(more));
        assert!(said.contains(expected), "{more}: {said}");
    }
    assert!(compile(&module("(func (drop (memory.grow (i32.const 1))))")).is_ok(), "it answers -1");
}

#[test]
fn a_border_that_is_not_the_agreed_one_is_refused_with_its_reason() {
    let memory = "(memory (export \"memory\") 256 256)";
    let heap_base = "(global (export \"__heap_base\") i32 (i32.const 65536))";
    let run = entry("f");
    let bad_memory = "not one of 32 bits, not shared, with exactly 256 pages";
    for (parts, expected) in [
        (format!("{heap_base} {run}"), "no memory of its own"),
        (format!("(memory 256 256) {heap_base} {run}"), "no memory of its own that it exports"),
        (format!("(memory (export \"memory\") 256) {heap_base} {run}"), bad_memory),
        (format!("(memory (export \"memory\") 1 256) {heap_base} {run}"), bad_memory),
        (format!("(memory (export \"memory\") 257 257) {heap_base} {run}"), bad_memory),
        (format!("(memory (export \"memory\") i64 256 256) {heap_base} {run}"), bad_memory),
        (format!("(memory (export \"memory\") 256 256 shared) {heap_base} {run}"), bad_memory),
        (format!("(import \"splinter\" \"memory\" (memory 256 256)) {heap_base} {run}"), "not a function"),
        (format!("{memory} {run}"), "does not export \"__heap_base\""),
        (format!("{memory} (global (export \"__heap_base\") i32 (i32.const 65535)) {run}"), "not from 65536"),
        (format!("{memory} (global (export \"__heap_base\") i32 (i32.const 16777216)) {run}"), "not from"),
        (format!("{memory} (global (export \"__heap_base\") i32 (i32.const -4)) {run}"), "not from"),
        (
            format!("{memory} (global (export \"__heap_base\") (mut i32) (i32.const 65536)) {run}"),
            "immutable",
        ),
        (format!("{memory} {heap_base}"), "does not export run_f"),
        (format!("{memory} {heap_base} {}", entry("g")), "does not export run_f"),
    ] {
        let said = refusal(&format!("(module {parts})"));
        assert!(said.contains(expected), "{parts}: {said}");
    }
    let now = "(import \"splinter\" \"now_ms\" (func (result i64)))";
    let rest = format!("{memory} {heap_base} {run}");
    assert!(compile(&format!("(module {now} {rest})")).is_ok());
    for (import, expected) in [
        (format!("{now} {now}"), "twice"),
        (now.replace("i64", "i32"), "another type than () -> (i64)"),
        (now.replace("now_ms", "then"), "which no server has"),
        (now.replace("splinter", "env"), "which no server has"),
        ("(import \"splinter\" \"g\" (global i32))".into(), "not a function"),
    ] {
        let said = refusal(&format!("(module {import} {rest})"));
        assert!(said.contains(expected), "{import}: {said}");
    }
    for bytes in [&b""[..], b"text", b"\0asm\x0d\0\x01\0"] {
        assert!(matches!(toolchain().compile_module(bytes, &["f"]), Err(BuildError::ImportRefused { .. })));
    }
}

/// A function with so many locals and nested branch tables: a compiler's work is their product.
fn bomb(locals: usize, tables: usize, targets: usize) -> String {
    let mut body =
        format!("(func (export \"run_f\") (param i32) (result i64) (local{})", " i64".repeat(locals));
    body += &"(block ".repeat(tables);
    for table in 0..tables {
        let labels = (0..targets).map(|target| format!(" {}", target % (tables - table))).collect::<String>();
        let local = 1 + table % locals;
        body += &format!(
            "(local.set {local} (i64.add (local.get {local}) (local.get {}))) (br_table{labels} (local.get 0)))",
            1 + (table * 7) % locals
        );
    }
    for local in 1..=locals {
        body += &format!("(i64.add (local.get {local})");
    }
    body += " (i64.const 0)";
    body += &")".repeat(locals);
    let memory = "(memory (export \"memory\") 256 256)";
    format!("(module {memory} (global (export \"__heap_base\") i32 (i32.const 65536)) {body}))")
}

#[test]
fn a_module_that_would_keep_the_compiler_busy_is_refused_or_ended() {
    let long = format!("(func {})", "(drop (i32.const 1000000))".repeat(20_000));
    let many = "(func)".repeat(10_000);
    for (text, expected) in [
        (bomb(2_000, 200, 20), "2000 locals in a function; 500"),
        (bomb(100, 300, 30), "targets of branch tables in a function; 2048"),
        (module(&long), "bytes in a function; 65536"),
        (module(&many), "functions; 10000"),
        (module(&format!("(data (i32.const 65536) \"{}\")", "a".repeat(3 << 20))), "more than 2097152 bytes"),
    ] {
        let begun = Instant::now();
        let said = refusal(&text);
        assert!(said.contains(expected), "{said}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?} for {said}", begun.elapsed());
    }
    // The most that the limits allow ends, one way or the other.
    let begun = Instant::now();
    match compile(&bomb(499, 100, 20)) {
        Ok(_)
        | Err(BuildError::TimedOut { .. } | BuildError::Killed { .. } | BuildError::CompilerCrashed { .. }) =>
            {}
        other => panic!("{other:?}"),
    }
    eprintln!("the worst module within the limits: {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn parts_without_number_or_end_are_refused_or_cost_nothing() {
    let now = "(import \"splinter\" \"now_ms\" (func (result i64)))";
    let kinds = |count: usize| {
        let kind = |mut number: usize| {
            let mut parameters = String::new();
            for _ in 0..9 {
                parameters += [" i32", " i64", " f32", " f64"][number % 4];
                number /= 4;
            }
            format!("(type (func (param{parameters})))")
        };
        (0..count).map(kind).collect::<String>()
    };
    for (text, expected) in [
        (format!("(module {} {})", now.repeat(100_000), entry("f")), "twice"),
        (module(&"(global i32 (i32.const 7))".repeat(999)), ""),
        (module(&"(global i32 (i32.const 7))".repeat(1_000)), "1001 globals; 1000"),
        (module(&kinds(1_000)), ""),
        (module(&kinds(100_000)), "types; 10000 are the most"),
        (module(&"(data (i32.const 65536) \"a\")".repeat(100)), ""),
        (module(&"(data (i32.const 65536) \"a\")".repeat(90_000)), "90000 segments of data; 1000"),
        (
            module(&format!("(table 9 9 funcref) {}", "(elem (i32.const 0) 0)".repeat(90_000))),
            "90000 segments of elements; 1000",
        ),
        (module(&format!("(func (export \"run_{}\"))", "g".repeat(90_000))), "another type"),
        (module(&format!("(func (export \"run_{}\"))", "g".repeat(200_000))), "cannot be read"),
        (
            format!("(module (import \"splinter\" \"{}\" (func)) {})", "g".repeat(90_000), entry("f")),
            "no server has",
        ),
        (module(&format!("(@custom \"{}\" \"{}\")", "c".repeat(90_000), "c".repeat(1 << 20))), ""),
        (module("(data (i32.const 70000) \"\")"), ""),
        (module("(data (i32.const 70001) \"\")"), "data outside of 65536"),
        (module("(table 9 9 funcref) (elem (i32.const -1) 0 0)"), "elements beyond its table"),
        (
            module(
                "(func (local i32) unreachable (i32.store offset=4294967295 align=1 (local.get 0) (local.get 0)))",
            ),
            "",
        ),
    ] {
        let begun = Instant::now();
        let shown = &text[..text.len().min(200)];
        match compile(&text) {
            Ok(_) => assert_eq!(expected, "", "{shown}"),
            Err(BuildError::ImportRefused { what }) => {
                assert!(
                    !expected.is_empty() && what.contains(expected),
                    "{shown}: {}",
                    &what[..what.len().min(300)]
                );
                assert!(what.len() < 2_000, "the reason is a sentence: {}", what.len());
            }
            other => panic!("{shown}: {other:?}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?} for {shown}", begun.elapsed());
    }
}

#[test]
fn deep_nesting_and_names_that_are_no_text_end_in_a_refusal_or_a_module() {
    for (open, close, depth) in
        [("(block ", ")", 15_000), ("(loop ", ")", 15_000), ("(if (i32.const 1) (then ", "))", 7_000)]
    {
        let text = module(&format!("(func {}{})", open.repeat(depth), close.repeat(depth)));
        let Ok(bytes) = wat::parse_str(&text) else { continue };
        match toolchain().compile_module(&bytes, &["f"]) {
            Ok(_)
            | Err(
                BuildError::ImportRefused { .. }
                | BuildError::CompilerCrashed { .. }
                | BuildError::Killed { .. }
                | BuildError::TimedOut { .. },
            ) => {}
            other => panic!("{open}: {other:?}"),
        }
    }
    let module = wat::parse_str(module("")).unwrap();
    for (name, wrong) in
        [(&b"run_f"[..], &b"run_\xff"[..]), (b"memory", b"m\xc3\x28ory"), (b"run_f", b"run_\0")]
    {
        let at = module.windows(name.len()).position(|found| found == name).unwrap();
        let mut bytes = module.clone();
        bytes[at..at + name.len()].copy_from_slice(wrong);
        let refused = toolchain().compile_module(&bytes, &["f"]);
        assert!(matches!(refused, Err(BuildError::ImportRefused { .. })), "{wrong:?}");
    }
}

#[test]
fn a_flipped_byte_of_machine_code_makes_the_artefact_as_good_as_none() {
    let package = Package::from_directory(Path::new(&format!("{ROOT}/ext/put"))).unwrap();
    let first = toolchain().build(&package).unwrap();
    let path = first.code.module().unwrap().path.clone();
    let code = fs::read(&path).unwrap();
    for place in [0, code.len() / 2, code.len() - 1] {
        let mut flipped = code.clone();
        flipped[place] ^= 1;
        fs::write(&path, &flipped).unwrap();
        let again = toolchain().build(&package).unwrap();
        assert!(!again.cached && again.code.module().is_ok_and(|module| module.path == path));
        assert!(fs::read(&path).unwrap() == code, "the same source makes the same code");
    }
    assert!(toolchain().build(&package).unwrap().cached);
}

#[test]
fn the_module_that_is_kept_for_others_is_compiled_to_the_same_machine_code() {
    let package = Package::from_directory(Path::new(&format!("{ROOT}/ext/put"))).unwrap();
    let artefact = toolchain().build(&package).unwrap();
    let portable = artefact.portable.as_ref().expect("it has a module").read().unwrap();
    let compiler = ModuleCompiler::find().unwrap();
    assert!(
        compiler.compile(&portable, &["put"]).unwrap() == artefact.code.module().unwrap().read().unwrap()
    );
    for (module, functions) in
        [(&portable[..], &["get"][..]), (&portable[..portable.len() / 2], &["put"]), (b"\0asm", &["put"])]
    {
        let refused = compiler.compile(module, functions);
        assert!(matches!(refused, Err(BuildError::ImportRefused { .. })), "{refused:?}");
    }
}

#[test]
fn a_source_that_32_bits_do_not_hold_is_a_shared_object_alone() {
    let artefact = toolchain()
        .build(&extension(
            "#![no_std]\nuse sandstorm::{Args, Db, Error, Reply};\nsandstorm::extension! { read run }\n\
             const LARGE: usize = 1 << 40;\n\
             async fn run(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {\n\
             reply.u64(LARGE as u64) }\n",
        ))
        .unwrap();
    let why = artefact.code.module().unwrap_err();
    assert!(why.starts_with("wasm unavailable: ") && why.contains("1 << 40"), "{why}");
    assert!(artefact.code.object().unwrap().is_file());
}

#[test]
fn a_machine_without_the_module_compiler_builds_shared_objects_and_says_why() {
    let cache = tempfile::tempdir().unwrap();
    let built = Command::new(env!("CARGO_BIN_EXE_splinter-build"))
        .arg(format!("{ROOT}/ext/noop"))
        .arg(cache.path())
        .env("SPLINTER_WASMC", "/nowhere/splinter-wasmc")
        .output()
        .unwrap();
    let text = String::from_utf8(built.stdout).unwrap();
    assert!(built.status.success() && text.contains(".so\n"), "{text}");
    assert!(text.contains("\nwasm unavailable: no splinter-wasmc"), "{text}");
    let kept: Vec<_> = fs::read_dir(cache.path().join("artefacts")).unwrap().collect();
    assert_eq!(kept.len(), 2, "a shared object and its description");
}

/// Writes a module compiler with the version of the real one that does `work` with each module; returns its path.
fn false_compiler(folder: &Path, work: &str) -> PathBuf {
    let real = std::env::var_os("SPLINTER_WASMC").map_or_else(
        || Path::new(env!("CARGO_BIN_EXE_splinter-build")).with_file_name("splinter-wasmc"),
        PathBuf::from,
    );
    let version = Command::new(real).arg("--version").output().expect("the module compiler").stdout;
    let text = format!(
        "fn main() {{ match std::env::args().nth(1) {{ Some(_) => print!({:?}), None => {work} }} }}",
        String::from_utf8(version).unwrap()
    );
    let (source, program) = (folder.join("compiler.rs"), folder.join("compiler"));
    fs::write(&source, text).unwrap();
    let made = Command::new("rustc").arg(&source).arg("-o").arg(&program).current_dir(folder).status();
    assert!(made.unwrap().success());
    program
}

/// Builds an extension in a cache, with the usual module compiler or another; returns what the builder says of it.
fn build_noop(compiler: Option<&Path>, cache: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_splinter-build"));
    command.arg(format!("{ROOT}/ext/noop")).arg(cache);
    if let Some(compiler) = compiler {
        command.env("SPLINTER_WASMC", compiler);
    }
    let built = command.output().unwrap();
    let text = String::from_utf8(built.stdout).unwrap();
    assert!(built.status.success() && text.contains(".so\n"), "{text}");
    text
}

#[test]
fn a_module_that_was_not_made_for_a_passing_reason_is_made_by_a_later_build() {
    let folder = tempfile::tempdir().unwrap();
    let build = |compiler: Option<&Path>, cache: &str| build_noop(compiler, &folder.path().join(cache));
    for (work, expected, is_passing) in [
        ("loop {}", "compiling the module took too long", true),
        ("std::process::abort()", "compiling the module was killed", true),
        ("{ eprintln!(\"not this one\"); std::process::exit(1) }", "(not this one)", false),
    ] {
        let cache = if is_passing { "passing" } else { "final" };
        let said = build(Some(&false_compiler(folder.path(), work)), cache);
        assert!(said.contains("\nwasm unavailable: ") && said.contains(expected), "{said}");
        if work.starts_with("loop") {
            continue;
        }
        let said = build(None, cache);
        assert_eq!(said.contains(".cwasm\n"), is_passing, "{said}");
    }
    // A source that always meets a limit is not compiled for ever.
    let killed = false_compiler(folder.path(), "std::process::abort()");
    (0..MODULE_ATTEMPTS_MAX).for_each(|_| drop(build(Some(&killed), "always")));
    let said = build(None, "always");
    assert!(said.contains("\nwasm unavailable: compiling the module was killed"), "{said}");
}

#[test]
fn machine_code_has_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    for (bytes, is_within) in [(ARTEFACT_BYTES_MAX - 1, true), (ARTEFACT_BYTES_MAX, false)] {
        let work = format!("std::io::Write::write_all(&mut std::io::stdout(), &vec![7; {bytes}]).unwrap()");
        let compiler = false_compiler(folder.path(), &work);
        let text = build_noop(Some(&compiler), &folder.path().join(bytes.to_string()));
        assert_eq!(text.contains(".cwasm\n"), is_within, "{text}");
        assert!(is_within || text.contains("machine code has more than 4194304 bytes"), "{text}");
    }
}
