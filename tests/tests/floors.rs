//! Holds the shape of the project: which crate and which module may import which, how long files and
//! functions grow, where `unsafe` may stand, how files are named.
//!
//! Every rule is a table in `floors/tables.rs`; a change of the architecture is a change of a table, made on
//! purpose and in the same commit. Each refusal names the rule, the file and the line. The test reads source and
//! manifests alone, so `scripts/test` also compiles it by itself, before anything big is built.

mod floors {
    pub mod imports;
    pub mod manifest;
    pub mod source;
    pub mod tables;
}

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use floors::imports;
use floors::manifest::{self, Kind};
use floors::source::{self, Source};
use floors::tables::{
    CRATES, DEVELOPMENT, EXTENSION_MAY_USE, FILE_LINES_MAX, FILE_LINES_WARN, FORBIDDEN_NAMES,
    FUNCTION_LINES_MAX, HOMONYMS, SERVER_FLOORS, UNSAFE_MAY_STAND_IN,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the root").to_path_buf()
}

fn sources() -> Vec<Source> {
    let folders = CRATES.iter().map(|one| one.name).chain(["ext"]);
    folders.flat_map(|folder| source::read_all(&root(), folder)).collect()
}

fn extension_folders() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root().join("ext")) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).filter(|path| path.join("Cargo.toml").exists()).collect()
}

fn refuse(broken: Vec<String>) {
    assert!(broken.is_empty(), "\n\n  {}\n", broken.join("\n  "));
}

#[test]
fn crates_import_only_what_their_floor_allows() {
    let names: BTreeSet<&str> = CRATES.iter().map(|one| one.name).collect();
    let mut broken = Vec::new();
    for one in CRATES {
        let path = root().join(one.name).join("Cargo.toml");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for dependency in manifest::dependencies(&text) {
            let name = dependency.name.as_str();
            let for_tests = dependency.kind == Kind::Dev && DEVELOPMENT.contains(&name);
            let allowed = if names.contains(name) { one.ours } else { one.outside };
            if !for_tests && !allowed.contains(&name) && allowed != ["*"] {
                broken.push(format!(
                    "{}/Cargo.toml: `{}` may not use `{name}`; it may use {:?} of ours and {:?} from outside",
                    one.name, one.name, one.ours, one.outside
                ));
            }
        }
    }
    refuse(broken);
}

#[test]
fn the_table_of_crates_is_the_workspace() {
    let text = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace has a manifest");
    let members = text.lines().find(|line| line.starts_with("members")).expect("members stand on one line");
    let listed: BTreeSet<&str> = members.split('"').skip(1).step_by(2).collect();
    let table: BTreeSet<&str> = CRATES.iter().map(|one| one.name).collect();
    assert_eq!(listed, table, "Cargo.toml and CRATES in tests/tests/floors/tables.rs name different crates");
}

#[test]
fn extensions_depend_on_the_sdk_alone() {
    let mut broken = Vec::new();
    for folder in extension_folders() {
        let path = folder.join("Cargo.toml");
        let text = fs::read_to_string(&path).expect("the manifest is readable");
        for dependency in manifest::dependencies(&text) {
            if !EXTENSION_MAY_USE.contains(&dependency.name.as_str()) {
                let name = dependency.name;
                broken.push(format!("{}: an extension may not use `{name}`", path.display()));
            }
        }
    }
    refuse(broken);
}

#[test]
fn modules_of_the_server_import_downwards() {
    let floor_of = |module: &str| SERVER_FLOORS.iter().position(|floor| floor.contains(&module));
    let files = source::read_all(&root(), "db/src");
    let exports = exports_of(&files);
    let mut broken = Vec::new();
    for file in &files {
        let Some(module) = source::module_of(&file.path) else { continue };
        let Some(floor) = floor_of(module) else {
            broken.push(format!("{}: module `{module}` stands on no floor of SERVER_FLOORS", file.path));
            continue;
        };
        for (name, line) in source::root_paths(file) {
            let target = exports.get(&name).unwrap_or(&name);
            if target == module {
                continue;
            }
            match floor_of(target) {
                Some(below) if below < floor => {}
                Some(_) => broken.push(format!(
                    "{}:{line}: `{module}` may not import `{target}`: imports go down only",
                    file.path
                )),
                None => {
                    broken.push(format!("{}:{line}: `crate::{name}` is no module of the server", file.path))
                }
            }
        }
    }
    refuse(broken);
}

/// Whether a file holds tests of a module, which may use what stands above it.
fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.ends_with("_tests.rs") || path.contains("/tests/")
}

fn exports_of(files: &[Source]) -> BTreeMap<String, String> {
    let root_file = files.iter().find(|file| file.path.ends_with("/src/lib.rs"));
    root_file.map(|file| source::exports(&file.code)).unwrap_or_default()
}

#[test]
fn no_crate_has_a_cycle_between_its_modules() {
    let mut broken = Vec::new();
    for one in CRATES {
        let files = source::read_all(&root(), &format!("{}/src", one.name));
        let exports = exports_of(&files);
        let modules: BTreeSet<&str> = files.iter().filter_map(|file| source::module_of(&file.path)).collect();
        let mut imports: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for file in &files {
            let Some(module) = source::module_of(&file.path) else { continue };
            if is_test(&file.path) {
                continue;
            }
            for (name, _) in source::root_paths(file) {
                let target = exports.get(&name).unwrap_or(&name);
                let other =
                    modules.get(target.as_str()).filter(|other| **other != module && **other != "tests");
                if let Some(target) = other {
                    imports.entry(module).or_default().insert(target);
                }
            }
        }
        if let Some(cycle) = cycle_in(imports) {
            broken.push(format!("{}: these modules import each other in a circle: {cycle}", one.name));
        }
    }
    refuse(broken);
}

/// Takes away modules that import nothing of the rest, or that nothing of the rest imports, until none is
/// left, or only circles.
fn cycle_in(mut imports: BTreeMap<&str, BTreeSet<&str>>) -> Option<String> {
    loop {
        let before = imports.clone();
        let imported: BTreeSet<&str> = imports.values().flatten().copied().collect();
        imports.retain(|module, targets| {
            targets.retain(|target| before.contains_key(target));
            imported.contains(module) && !targets.is_empty()
        });
        if imports.is_empty() {
            return None;
        }
        if imports == before {
            let edges = imports
                .iter()
                .flat_map(|(from, targets)| targets.iter().map(move |to| format!("{from} -> {to}")));
            return Some(edges.collect::<Vec<_>>().join(", "));
        }
    }
}

#[test]
fn no_two_types_of_a_crate_have_the_same_name() {
    let mut broken = Vec::new();
    for one in CRATES {
        let files = source::read_all(&root(), &format!("{}/src", one.name));
        broken.extend(homonyms(one.name, &files));
    }
    refuse(broken);
}

fn homonyms(crate_name: &str, files: &[Source]) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| !is_test(&file.path)) {
        for (name, line) in source::types(&file.code) {
            places.entry(name).or_default().push(format!("{}:{line}", file.path));
        }
    }
    let is_twice = |(name, places): &(String, Vec<String>)| {
        places.len() > 1 && !HOMONYMS.contains(&(crate_name, name.as_str()))
    };
    let text = |(name, places): (String, Vec<String>)| {
        format!("`{name}` names {} types of `{crate_name}`: {}", places.len(), places.join(", "))
    };
    places.into_iter().filter(is_twice).map(text).collect()
}

#[test]
fn a_name_of_two_types_is_found() {
    let file = |path: &str, code: &str| Source { path: path.into(), text: String::new(), code: code.into() };
    let planted = [
        file("c/src/a.rs", "pub struct Place;"),
        file("c/src/b.rs", "enum Place {}"),
        file("c/src/b/tests.rs", "struct Place;"),
    ];
    assert_eq!(homonyms("c", &planted), ["`Place` names 2 types of `c`: c/src/a.rs:1, c/src/b.rs:1"]);
    assert!(homonyms("c", &planted[1..]).is_empty());
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let mut broken = Vec::new();
    for one in CRATES {
        let imports = imports::of_crate(&source::read_all(&root(), &format!("{}/src", one.name)));
        for circle in imports::circles(&imports) {
            let edges = circle.iter().flat_map(|from| {
                let to = imports[from].iter().filter(|(to, _)| circle.contains(to));
                to.map(move |(to, names)| format!("\n    {from} -> {to}: {names:?}"))
            });
            broken.push(format!("these import each other in a circle:{}", edges.collect::<String>()));
        }
    }
    refuse(broken);
}

#[test]
fn files_and_functions_stay_below_the_wall() {
    let mut broken = Vec::new();
    for file in sources() {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            broken.push(format!("{}: {lines} lines, the wall stands at {FILE_LINES_MAX}", file.path));
        } else if lines > FILE_LINES_WARN {
            println!("warning: {}: {lines} lines, {FILE_LINES_WARN} asks for thought", file.path);
        }
        for (name, line, lines) in source::functions(&file.code) {
            if lines > FUNCTION_LINES_MAX {
                let at = format!("{}:{line}", file.path);
                broken.push(format!("{at}: `{name}` has {lines} lines, {FUNCTION_LINES_MAX} are allowed"));
            }
        }
    }
    refuse(broken);
}

#[test]
fn unsafe_stands_only_in_the_listed_files() {
    let mut broken = Vec::new();
    let files = sources();
    for file in &files {
        let listed = UNSAFE_MAY_STAND_IN.iter().any(|place| file.path.starts_with(place));
        let found = source::tokens(&file.code).into_iter().find(|token| token.text == "unsafe");
        if let (Some(token), false) = (found, listed) {
            broken.push(format!("{}:{}: `unsafe` outside UNSAFE_MAY_STAND_IN", file.path, token.line));
        }
    }
    for place in UNSAFE_MAY_STAND_IN {
        let used = |file: &&Source| {
            file.path.starts_with(place)
                && source::tokens(&file.code).iter().any(|token| token.text == "unsafe")
        };
        if !files.iter().any(|file| used(&file)) {
            broken.push(format!("{place}: listed in UNSAFE_MAY_STAND_IN and has no `unsafe`: take it off"));
        }
    }
    refuse(broken);
}

#[test]
fn files_are_called_by_what_they_define_and_open_with_a_head() {
    let mut broken = Vec::new();
    for file in sources() {
        let name = Path::new(&file.path).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let folders = file.path.split('/').any(|part| part != "mod" && FORBIDDEN_NAMES.contains(&part));
        if folders || FORBIDDEN_NAMES.contains(&name.as_str()) {
            broken.push(format!("{}: this name says nothing about what is inside", file.path));
        }
        if !file.text.starts_with("//!") {
            broken.push(format!("{}: opens without `//!` lines that say what it is", file.path));
        }
    }
    refuse(broken);
}
