//! Tests of packages from hostile bytes.

use super::Package;
use crate::limits;

fn files(extra: Vec<(&str, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let mut files = vec![("Cargo.toml".into(), vec![]), ("src/lib.rs".into(), b"//".to_vec())];
    files.extend(extra.into_iter().map(|(path, bytes)| (path.to_string(), bytes)));
    files
}

fn refusal(name: &str, files: Vec<(String, Vec<u8>)>) -> String {
    Package::new(name, files).expect_err("a refusal")[0].to_string()
}

#[test]
fn bad_names_are_refused() {
    for name in ["../evil", "", "a\0b", &"x".repeat(10_000), "ünï"] {
        let text = refusal(name, files(vec![]));
        assert!(text.contains("no name for an extension") && text.len() < 400, "{text}");
    }
}

#[test]
fn bad_paths_are_refused() {
    for path in ["../lib.rs", "/etc/passwd", "src/../../x.rs", &"y/".repeat(5_000)] {
        let text = refusal("hello", files(vec![(path, vec![])]));
        assert!(text.contains("no path of a package") && text.len() < 400, "{text}");
    }
}

#[test]
fn sizes_are_limited() {
    let big = refusal("hello", files(vec![("src/a.rs", vec![b' '; 10 << 20])]));
    assert!(big.contains("10485790 bytes"), "{big}");
    let long = refusal("hello", files(vec![("src/a.rs", vec![b' '; limits::FILE_BYTES_MAX + 1])]));
    assert!(long.starts_with("src/a.rs: the file has 262145 bytes"), "{long}");
    let names: Vec<String> = (0..300).map(|index| format!("src/f{index}.rs")).collect();
    let many = refusal("hello", files(names.iter().map(|name| (&**name, vec![])).collect()));
    assert!(many.contains("302 files"), "{many}");
}

#[test]
fn text_that_is_not_utf8_is_refused_with_its_place() {
    let text = refusal("hello", files(vec![("src/a.rs", b"one\ntwo \xff".to_vec())]));
    assert_eq!(text, "src/a.rs:2:5: the file is not UTF-8 text; instead, save it as UTF-8");
}

#[test]
fn missing_and_doubled_files_are_refused() {
    assert!(refusal("hello", vec![]).starts_with("Cargo.toml: the package lacks this file"));
    assert!(refusal("hello", files(vec![("src/lib.rs", vec![])])).contains("there twice"));
}

#[test]
fn the_digest_depends_on_files_but_not_on_the_name() {
    let one = Package::new("one", files(vec![])).unwrap();
    let two = Package::new("two", files(vec![])).unwrap();
    let other = Package::new("one", files(vec![("src/a.rs", vec![])])).unwrap();
    assert_eq!(one.digest(), two.digest());
    assert_eq!(one.clone().renamed("two").unwrap(), two);
    assert_ne!(one.digest(), other.digest());
}

fn finished(extra: Vec<(&str, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let files = vec![("module.wasm", b"\0asm\xff".to_vec()), ("functions.toml", b"border = 1".to_vec())];
    files.into_iter().chain(extra).map(|(path, bytes)| (path.to_string(), bytes)).collect()
}

#[test]
fn a_finished_module_keeps_its_bytes_and_has_a_digest_of_its_own() {
    let package = Package::new("get", finished(vec![])).unwrap();
    assert!(package.is_finished() && package.file("functions.toml").is_none());
    let kept: Vec<_> = package.files().collect();
    assert_eq!(kept, [("functions.toml", &b"border = 1"[..]), ("module.wasm", b"\0asm\xff")]);
    let text = serde_json::to_string(&package).unwrap();
    assert_eq!(serde_json::from_str::<Package>(&text).unwrap(), package);
    let renamed = package.clone().renamed("other").unwrap();
    assert_eq!(renamed.digest(), package.digest());
    let mut changed = finished(vec![]);
    changed[0].1[4] = 0xfe;
    assert_ne!(Package::new("get", changed).unwrap().digest(), package.digest());
    assert!(!Package::new("one", files(vec![])).unwrap().is_finished());
}

#[test]
fn a_finished_module_is_two_files_of_limited_size() {
    let text = refusal("get", finished(vec![("src/lib.rs", vec![])]));
    assert!(text.contains("\"src/lib.rs\" does not belong to a finished module"), "{text}");
    let text = refusal("get", finished(vec![("functions.toml", vec![])]));
    assert!(text.starts_with("functions.toml: the file is there twice"), "{text}");
    let text = refusal("get", vec![("module.wasm".into(), vec![])]);
    assert!(text.starts_with("functions.toml: the package lacks this file"), "{text}");
    let mut files = finished(vec![]);
    files[1].1 = vec![b' '; limits::FUNCTION_LIST_BYTES_MAX + 1];
    assert!(refusal("get", files).starts_with("functions.toml: the file has 65537 bytes"));
    let mut files = finished(vec![]);
    files[1].1 = b"border\xff".to_vec();
    assert!(refusal("get", files).starts_with("functions.toml:1:7: the file is not UTF-8 text"));
    let mut files = finished(vec![]);
    files[0].1 = vec![0; limits::MODULE_BYTES_MAX];
    assert!(refusal("get", files).contains("the package has 2 files and"));
}
