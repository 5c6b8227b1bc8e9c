//! The check of a package's crates in the order of compilation.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::Crate;
use super::Findings;
use super::entries;
use super::modules;
use crate::Checked;
use crate::Package;
use crate::Refusal;
use crate::checked::Source;
use crate::limits;
use crate::manifest::Manifest;

/// A crate of the package and its manifest.
struct Part {
    folder: String,
    manifest: Manifest,
}

/// Checks all crates of a package.
pub(super) fn check(package: &Package) -> Result<Checked, Vec<Refusal>> {
    let parts = in_order(package)?;
    let mut findings = Findings::default();
    let mut sources = Vec::new();
    let mut functions = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let uses: Vec<String> =
            part.manifest.dependencies.iter().map(|dependency| crate_name(&dependency.name)).collect();
        let wanted = Crate { package, folder: &part.folder, uses: &uses };
        let files = modules::check(&wanted, &mut findings);
        let is_extension = index + 1 == parts.len();
        functions = entries::find(&part.folder, files.first(), is_extension, &mut findings);
        let guards = files.iter().flat_map(|file| file.guards.clone()).collect();
        sources.push(Source {
            guards,
            crate_name: crate_name(&part.manifest.name),
            dependencies: uses,
            folder: part.folder.clone(),
            files: files.into_iter().map(|file| (file.path, file.text)).collect(),
        });
    }
    findings.finish()?;
    Ok(Checked { sources, functions })
}

/// Returns the crates, each after those that it uses; the extension last.
fn in_order(package: &Package) -> Result<Vec<Part>, Vec<Refusal>> {
    let mut manifests = BTreeMap::new();
    let mut waiting = vec![String::new()];
    while let Some(folder) = waiting.pop() {
        let path = format!("{folder}Cargo.toml");
        if manifests.contains_key(&folder) {
            continue;
        }
        let Some(text) = package.file(&path) else {
            let instead = "send the packages that it depends on along, below deps/";
            return Err(vec![Refusal::of(&path, "a package that is depended on is not there", instead)]);
        };
        let manifest = Manifest::parse(&path, text)?;
        let expected = folder.strip_prefix("deps/").and_then(|rest| rest.strip_suffix('/'));
        if expected.is_some_and(|expected| expected != manifest.name) {
            let what = format!("the package is called {}", manifest.name);
            return Err(vec![Refusal::of(&path, what, "give folder and package one name")]);
        }
        waiting.extend(manifest.dependencies.iter().map(|dependency| format!("deps/{}/", dependency.name)));
        manifests.insert(folder, manifest);
    }
    if manifests.len() > limits::DEPENDENCIES_MAX + 1 {
        let what = format!("the extension depends on more than {} packages", limits::DEPENDENCIES_MAX);
        return Err(vec![Refusal::of("Cargo.toml", what, "merge some of them")]);
    }
    refuse_strays(package, &manifests)?;
    sort(manifests)
}

/// Refuses files below `deps/` that belong to no package.
fn refuse_strays(package: &Package, manifests: &BTreeMap<String, Manifest>) -> Result<(), Vec<Refusal>> {
    for (path, _) in package.files() {
        let folder = path.strip_prefix("deps/").and_then(|rest| rest.split('/').next());
        if folder.is_some_and(|name| !manifests.contains_key(&format!("deps/{name}/"))) {
            let what = "the file belongs to a package that nothing depends on";
            return Err(vec![Refusal::of(path, what, "leave the package out")]);
        }
    }
    Ok(())
}

/// Orders crates by their dependencies.
fn sort(mut manifests: BTreeMap<String, Manifest>) -> Result<Vec<Part>, Vec<Refusal>> {
    let mut names = BTreeSet::new();
    for (folder, manifest) in &manifests {
        if !names.insert(crate_name(&manifest.name)) {
            let what = format!("two packages are called {}", manifest.name);
            return Err(vec![Refusal::of(&format!("{folder}Cargo.toml"), what, "rename one of them")]);
        }
    }
    let mut parts: Vec<Part> = Vec::new();
    while !manifests.is_empty() {
        let ready = manifests.iter().find(|(_, manifest)| {
            manifest
                .dependencies
                .iter()
                .all(|dependency| parts.iter().any(|part| part.manifest.name == dependency.name))
        });
        let Some(folder) = ready.map(|(folder, _)| folder.clone()) else {
            let path = manifests.keys().next().map(|folder| format!("{folder}Cargo.toml"));
            let what = "the packages depend on one another in a circle";
            return Err(vec![Refusal::of(&path.unwrap_or_default(), what, "break the circle")]);
        };
        let manifest = manifests.remove(&folder);
        parts.extend(manifest.map(|manifest| Part { folder, manifest }));
    }
    Ok(parts)
}

/// Returns the compiler's name of a package.
fn crate_name(package: &str) -> String {
    package.replace('-', "_")
}
