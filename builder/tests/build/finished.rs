//! Finished modules: what comes out of one, what is refused and why, and how they are packed.

use std::fs;
use std::path::Path;

use builder::BuildError;
use builder::Code;
use builder::Mode;
use builder::Package;
use builder::package::DirectoryError;

use crate::toolchain;

const LIST: &str =
    "border = 1\n[[function]]\nname = \"f\"\nmode = \"read\"\ndoc = \"Nothing.\\nArguments: none\"\n";

/// A module with a function `run_f`, and more.
fn module(more: &str) -> Vec<u8> {
    let text = format!(
        "(module (memory (export \"memory\") 256 256)
            (global (export \"__heap_base\") i32 (i32.const 70000))
            (func (export \"run_f\") (param i32) (result i64) i64.const 0) {more})"
    );
    wat::parse_str(text).expect("a module's text")
}

fn package(module: Vec<u8>, list: &str) -> Package {
    let files = vec![("module.wasm".into(), module), ("functions.toml".into(), list.into())];
    Package::new("finished", files).unwrap()
}

fn refusal(package: &Package) -> String {
    let here = builder::check(package).expect_err("a refusal")[0].to_string();
    match toolchain().build(package) {
        Err(BuildError::Refused(refusals)) => assert_eq!(refusals[0].to_string(), here),
        other => panic!("{other:?}"),
    }
    here
}

#[test]
fn a_finished_module_becomes_machine_code_alone() {
    let package = package(module(""), LIST);
    let checked = builder::check(&package).unwrap();
    assert!(checked.sources.is_empty());
    let artefact = toolchain().build(&package).unwrap();
    let Code::Finished(code) = &artefact.code else { panic!("{artefact:?}") };
    let portable = artefact.portable.as_ref().expect("it is a module").read().unwrap();
    assert_eq!((code.read().unwrap().len() + portable.len()) as u64, artefact.bytes());
    assert_eq!(artefact.functions, checked.functions);
    let function = &artefact.functions[0];
    assert_eq!((&*function.name, function.mode), ("f", Mode::Read));
    assert_eq!(builder::arguments_of(&function.doc), Some("none"));
    let again = toolchain().rebuild(&package).unwrap();
    assert!(again.cached && again.code == artefact.code);
    assert!(toolchain().build_module(&package).unwrap().starts_with(b"\0asm"));
}

#[test]
fn what_no_server_runs_is_refused_by_command_and_server_alike() {
    let takes = "(param i32 i32 i32) local.get 0 local.get 1 local.get 2";
    for (more, expected) in [
        (
            format!("(func {takes} memory.copy)"),
            "memory.copy, which no signal interrupts: compile with -mno-bulk",
        ),
        (
            format!("(func {takes} memory.fill)"),
            "memory.fill, which no signal interrupts: compile with -mno-bulk",
        ),
        ("(func $s) (start $s)".into(), "has a start function"),
        ("(func (export \"_start\"))".into(), "exports \"_start\", which no server uses"),
        (
            "(func (export \"run_g\") (param i32) (result i64) i64.const 0)".into(),
            "functions that are not listed",
        ),
        ("(memory 1 1)".into(), "2 memories"),
    ] {
        let text = refusal(&package(module(&more), LIST));
        assert!(text.starts_with("module.wasm: the module ") && text.contains(expected), "{text}");
        assert!(text.contains("docs/modules.md"), "{text}");
    }
    let import = "(module (import \"wasi_snapshot_preview1\" \"fd_write\" (func (param i32 i32 i32 i32) (result i32))))";
    let text = refusal(&package(wat::parse_str(import).unwrap(), LIST));
    assert!(
        text.contains("\"fd_write\" of module \"wasi_snapshot_preview1\", which no server has"),
        "{text}"
    );
    let text = refusal(&package(b"no module".to_vec(), LIST));
    assert!(text.starts_with("module.wasm: the module cannot be read"), "{text}");
    let text = refusal(&package(module(""), &LIST.replace("\"f\"", "\"g\"")));
    assert!(text.contains("does not export run_g"), "{text}");
    let text = refusal(&package(module(""), &LIST.replace("border = 1", "border = 7")));
    assert!(text.starts_with("functions.toml:1:10: border 7 is not this server's"), "{text}");
    let deep = format!("border = {}", "[".repeat(60_000));
    assert!(refusal(&package(module(""), &deep)).starts_with("functions.toml:1:"));
}

/// An author may bring the loops that the glue brings to modules of Rust source.
#[test]
fn copying_instructions_become_calls_of_the_modules_own_loops() {
    let loops = "(func (export \"splinter_copy\") (param i32 i32 i32))
        (func (param i32 i32 i32) local.get 0 local.get 1 local.get 2 memory.copy)";
    assert!(toolchain().build(&package(module(loops), LIST)).is_ok());
}

#[test]
fn a_module_is_packed_from_its_file_or_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("sums");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("functions.toml"), LIST).unwrap();
    fs::write(place.join("module.wasm"), module("")).unwrap();
    fs::write(place.join("other.wasm"), module("")).unwrap();
    let expected = package(module(""), LIST).renamed("sums").unwrap();
    assert_eq!(Package::from_directory(&place).unwrap(), expected);
    assert_eq!(Package::from_path(&place, None).unwrap(), expected);
    assert_eq!(Package::from_path(&place.join("module.wasm"), None).unwrap(), expected);
    assert_eq!(
        Package::from_path(&place.join("other.wasm"), None).unwrap(),
        expected.clone().renamed("other").unwrap()
    );
    let odd = folder.path().join("2 Odd");
    fs::rename(&place, &odd).unwrap();
    assert!(Package::from_path(&odd, None).is_err());
    for path in [&odd, &odd.join("other.wasm")] {
        let named = Package::from_path(path, Some("sums")).unwrap();
        assert_eq!(named, expected);
    }
    fs::rename(&odd, &place).unwrap();
    fs::remove_file(place.join("functions.toml")).unwrap();
    match Package::from_path(&place, None) {
        Err(DirectoryError::Io { path, .. }) => {
            assert_eq!(path.file_name(), Path::new("functions.toml").file_name())
        }
        other => panic!("{other:?}"),
    }
    // Source goes before a module that was built of it.
    fs::create_dir(place.join("src")).unwrap();
    fs::write(place.join("src/lib.rs"), "").unwrap();
    fs::write(place.join("Cargo.toml"), "[package]\nname = \"sums\"\n").unwrap();
    assert!(!Package::from_path(&place, None).unwrap().is_finished());
}
