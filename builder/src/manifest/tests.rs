//! Tests of accepted manifests, and of each refused part.

use super::Manifest;

fn refusal(text: &str) -> String {
    Manifest::parse("Cargo.toml", text).expect_err(text)[0].to_string()
}

#[test]
fn an_ordinary_manifest_gives_name_and_path_dependencies() {
    let text = "[package]\nname = \"hello\"\nversion.workspace = true\nedition.workspace = true\n\
                [dependencies]\nsandstorm.workspace = true\ntao = { path = \"../../tao\", version = \"0.1\" }\n\
                [dev-dependencies]\nproptest = \"1\"\n[lints]\nworkspace = true\n[workspace]\n\
                [lib]\npath = \"src/lib.rs\"\n[profile.release]\nlto = true\n[features]\n";
    let manifest = Manifest::parse("Cargo.toml", text).unwrap();
    assert_eq!(manifest.name, "hello");
    let dependencies: Vec<_> =
        manifest.dependencies.iter().map(|dependency| (&*dependency.name, &*dependency.path)).collect();
    assert_eq!(dependencies, [("tao", "../../tao")]);
}

#[test]
fn what_would_change_the_build_is_refused_with_its_place() {
    for (text, expected) in [
        ("[package", "Cargo.toml:1:9: the manifest is no TOML"),
        ("", "Cargo.toml:1:1: the manifest gives no package a name"),
        ("[package]\nname = \"../x\"", "Cargo.toml:2:8: this is no name for a package"),
        ("[package]\nname = \"core\"", "Cargo.toml:2:8: this is no name for a package"),
        ("[package]\nname = 5", "Cargo.toml:2:8: this is no name for a package"),
        ("[package]\nname = \"a\"\nedition = \"2021\"", "Cargo.toml:3:11: the server builds edition 2024"),
        ("[package]\nname = \"a\"\nbuild = \"x.rs\"", "Cargo.toml:3:1: build scripts do not run"),
        ("[package]\nname = \"a\"\nlinks = \"z\"", "Cargo.toml:3:1: the server does not know package.links"),
        (
            "[package]\nname = \"a\"\n[lib]\nproc-macro = true",
            "Cargo.toml:4:1: the server does not build with lib.proc-macro",
        ),
        (
            "[package]\nname = \"a\"\n[lib]\npath = \"/etc/x.rs\"",
            "Cargo.toml:4:1: the server does not build with lib.path",
        ),
        (
            "[package]\nname = \"a\"\n[features]\nx = []",
            "Cargo.toml:3:2: the server does not build with [features]",
        ),
        (
            "[package]\nname = \"a\"\n[build-dependencies]\ncc = \"1\"",
            "Cargo.toml:3:2: the server does not build with [build-dependencies]",
        ),
        (
            "[package]\nname = \"a\"\n[target.x86_64]\n",
            "Cargo.toml:3:2: the server does not build with [target]",
        ),
        (
            "[package]\nname = \"a\"\n[patch.crates-io]\n",
            "Cargo.toml:3:2: the server does not build with [patch]",
        ),
        (
            "[package]\nname = \"a\"\n[dependencies]\nserde = \"1\"",
            "Cargo.toml:4:1: serde comes from a registry",
        ),
        (
            "[package]\nname = \"a\"\n[dependencies]\nb = { git = \"x\" }",
            "Cargo.toml:4:7: the dependency b has the key git",
        ),
        (
            "[package]\nname = \"a\"\n[dependencies]\nb.workspace = true",
            "Cargo.toml:4:3: the dependency b has the key workspace",
        ),
        (
            "[package]\nname = \"a\"\n[dependencies]\nb = { path = \"b\", features = [\"x\"] }",
            "Cargo.toml:4:19: the dependency b has the key features",
        ),
        (
            "[package]\nname = \"a\"\n[dependencies]\n\"../b\" = { path = \"b\" }",
            "Cargo.toml:4:1: this is no name for a package",
        ),
    ] {
        let refusal = refusal(text);
        assert!(refusal.starts_with(expected), "{text}\n  expected {expected}\n  got      {refusal}");
    }
}
