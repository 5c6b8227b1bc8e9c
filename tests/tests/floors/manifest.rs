//! Reads the dependencies out of a `Cargo.toml`, without a TOML parser.
//!
//! It knows the shapes that this workspace uses: tables of dependencies with one dependency a line,
//! and tables of one dependency each. A renamed dependency (`package = ...`) is reported under its real
//! name, so that a new name hides nothing. Called by the floors test alone.

/// Which of a package's three lists a dependency stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Linked into what the package ships.
    Normal,
    /// Used by tests and benches alone.
    Dev,
    /// Used by a build script.
    Build,
}

/// One line of a dependency table.
#[derive(Debug)]
pub struct Dependency {
    /// The list it stands in.
    pub kind: Kind,
    /// The name of the package.
    pub name: String,
}

/// All dependencies of a manifest, target-specific ones included.
pub fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut table = None;
    for line in manifest.lines() {
        let line = line.trim_end();
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            table = kind_of(header);
            if let (Some(kind), Some((_, name))) = (kind_of_single(header), header.rsplit_once('.')) {
                found.push(Dependency { kind, name: name.to_string() });
                table = None;
            }
            continue;
        }
        let Some(kind) = table else { continue };
        if !line.starts_with(|first: char| first.is_ascii_alphabetic()) {
            continue;
        }
        let key = line.split(['.', ' ', '=']).next().unwrap_or_default();
        found.push(Dependency { kind, name: renamed(line).unwrap_or(key).to_string() });
    }
    found
}

fn kind_of(header: &str) -> Option<Kind> {
    if header == "workspace.dependencies" {
        return None;
    }
    match header.rsplit('.').next().unwrap_or_default() {
        "dependencies" => Some(Kind::Normal),
        "dev-dependencies" => Some(Kind::Dev),
        "build-dependencies" => Some(Kind::Build),
        _ => None,
    }
}

/// The kind of a table such as `[dependencies.libc]`, which is one dependency.
fn kind_of_single(header: &str) -> Option<Kind> {
    kind_of(header.rsplit_once('.')?.0)
}

fn renamed(line: &str) -> Option<&str> {
    line.split_once("package = \"")?.1.split('"').next()
}

#[test]
fn a_manifest_yields_its_dependencies_by_kind_and_real_name() {
    let text = "[package]\nname = \"x\"\n\n[dependencies]\nlibc.workspace = true\n\
                hidden = { package = \"db\", path = \"../db\" }\n\n[dev-dependencies]\ntempfile = \"3\"\n\n\
                [target.\"cfg(loom_model)\".dependencies]\nloom = \"0.7\"\n\n[dependencies.syn]\nversion = \"2\"\n";
    let names: Vec<_> = dependencies(text).into_iter().map(|found| (found.kind, found.name)).collect();
    let expected = [
        (Kind::Normal, "libc"),
        (Kind::Normal, "db"),
        (Kind::Dev, "tempfile"),
        (Kind::Normal, "loom"),
        (Kind::Normal, "syn"),
    ];
    assert_eq!(names, expected.map(|(kind, name)| (kind, name.to_string())));
}
