//! What good sources become.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use builder::BuildError;
use builder::Mode;
use builder::Package;

use crate::extension;
use crate::toolchain;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const GOOD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/good");

#[test]
fn everyday_rust_passes_and_its_functions_are_described() {
    let text = fs::read_to_string(format!("{GOOD}/everyday.rs")).unwrap();
    let artefact = toolchain().build(&extension(&text)).unwrap();
    let functions: Vec<_> =
        artefact.functions.iter().map(|function| (&*function.name, function.mode, &*function.doc)).collect();
    assert_eq!(
        functions,
        [
            ("everyday", Mode::Read, "Does a bit of everything.\n\nIn two paragraphs."),
            ("store_it", Mode::Write, "Writes."),
        ]
    );
    let object = fs::read(artefact.code.object().unwrap()).unwrap();
    assert!(object.len() < 200 << 10, "{} bytes", object.len());
}

#[test]
fn identical_source_is_built_once_under_any_name() {
    let text = fs::read_to_string(format!("{GOOD}/probe.rs")).unwrap() + "// once\n";
    let package = extension(&text);
    let first = toolchain().build(&package).unwrap();
    let begun = Instant::now();
    let second = toolchain().build(&package.clone().renamed("other").unwrap()).unwrap();
    assert!(second.cached && second.compile_ms == 0 && begun.elapsed() < Duration::from_millis(200));
    assert_eq!((first.code, first.functions), (second.code.clone(), second.functions));
    fs::write(second.code.object().unwrap(), b"damaged").unwrap();
    let third = toolchain().build(&package).unwrap();
    assert!(!third.cached && third.code == second.code);
}

#[test]
fn the_projects_own_extensions_build() {
    for name in ["aggregate", "auth", "checksum", "get", "noop", "put", "scan", "spin", "tao", "ycsbt"] {
        let package = Package::from_directory(Path::new(&format!("{ROOT}/ext/{name}"))).unwrap();
        assert_eq!(package.name(), name);
        let artefact = toolchain().build(&package).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(artefact.functions.iter().all(|function| !function.doc.is_empty()));
        assert_eq!(artefact.warnings, "", "{name}");
    }
}

#[test]
fn modules_may_have_files_and_dependencies_may_have_modules() {
    let file = |path: &str, text: &str| (path.to_string(), text.as_bytes().to_vec());
    let library = "#![no_std]\npub mod deep;\npub fn one() -> u32 { deep::er::ONE }\n";
    let files = vec![
        file(
            "Cargo.toml",
            "[package]\nname = \"hello\"\n[dependencies]\nsandstorm.path = \"s\"\nmy-lib = { path = \"../x\" }\n",
        ),
        file(
            "src/lib.rs",
            "#![no_std]\nmod inner;\nuse sandstorm::{Args, Db, Error, Reply};\n\
             sandstorm::extension! { read run }\n\
             async fn run(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {\n\
             reply.u32(my_lib::one() + inner::two())?; db.yield_now().await; reply.u32(args.table().id()) }\n",
        ),
        file("src/inner.rs", "use self::part::TWO;\nmod part;\npub fn two() -> u32 { TWO }\n"),
        file("src/inner/part.rs", "pub const TWO: u32 = 2;\n#[cfg(test)]\nmod tests;\n"),
        file("src/unused.rs", "static NEVER_COMPILED: u8 = 0;"),
        file("deps/my-lib/Cargo.toml", "[package]\nname = \"my-lib\"\nedition = \"2024\"\n"),
        file("deps/my-lib/src/lib.rs", library),
        file("deps/my-lib/src/deep.rs", "pub mod er;"),
        file("deps/my-lib/src/deep/er.rs", "pub const ONE: u32 = 1;"),
    ];
    let mut bad = files.clone();
    bad[8].1 = b"pub const ONE: u32 = 1;\n    static S: u8 = 0;".to_vec();
    toolchain().build(&Package::new("hello", files).unwrap()).unwrap();
    match toolchain().build(&Package::new("hello", bad).unwrap()) {
        Err(BuildError::Refused(refusals)) => {
            assert!(refusals[0].to_string().starts_with("deps/my-lib/src/deep/er.rs:2:5: a static"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_extension_passes_its_unit_test_and_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("hello");
    builder::template::write(&directory, "hello").unwrap();
    let artefact = toolchain().build(&Package::from_directory(&directory).unwrap()).unwrap();
    assert_eq!((artefact.functions[0].name.as_str(), artefact.warnings.as_str()), ("greet", ""));
    assert!(builder::template::write(&directory, "hello").is_err(), "the folder is not empty any more");
    assert!(builder::template::write(&folder.path().join("bad"), "../bad").is_err());
    let text = cargo_test(&directory, folder.path());
    assert!(text.contains("1 passed"), "{text}");
}

/// What `cargo test` prints of a package whose tests pass.
fn cargo_test(directory: &Path, folder: &Path) -> String {
    let test = Command::new("cargo")
        .args(["test", "--offline", "--quiet"])
        .current_dir(directory)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .output()
        .expect("cargo");
    let text = String::from_utf8_lossy(&test.stdout).into_owned();
    assert!(test.status.success(), "{text}{}", String::from_utf8_lossy(&test.stderr));
    text
}

#[test]
fn a_new_extension_writes_formatted_text_and_its_unit_tests_use_std() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("hello");
    builder::template::write(&directory, "hello").unwrap();
    let source = directory.join("src/lib.rs");
    let text = fs::read_to_string(&source).unwrap();
    let text =
        text.replace("reply.write(b\", \")?;", "write!(reply, \", {} times, \", args.bytes().len())?;");
    let text = text.replace(
        "        assert_eq!(db.call_read(greet, people, b\"1\", b\"Hello\").unwrap(), b\"Hello, Ada\");\n",
        "        let said = db.call_read(greet, people, b\"1\", b\"Hello\").unwrap();\n\
         let mut words = std::collections::HashMap::<String, usize>::new();\n\
         for word in String::from_utf8(said).unwrap().split(' ') { *words.entry(word.to_owned()).or_default() += 1; }\n\
         println!(\"{}\", vec![format!(\"{words:?}\")].join(\", \"));\n\
         assert_eq!((words.len(), words[\"Ada\"]), (4, 1));\n",
    );
    fs::write(&source, text).unwrap();
    let artefact = toolchain().build(&Package::from_directory(&directory).unwrap()).unwrap();
    assert_eq!(artefact.warnings, "");
    assert!(cargo_test(&directory, folder.path()).contains("1 passed"));
}
