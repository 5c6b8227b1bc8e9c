//! The parts of a `Cargo.toml` that the builder uses: the name, and the path dependencies.
//!
//! The server runs no cargo, so anything that would change the compiled code is refused, not ignored: build scripts,
//! procedural macros, features, registry dependencies. Settings for unit tests and editors only (dev-dependencies,
//! lints, profiles) are ignored.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeTable;
use toml::de::DeValue;

use crate::Refusal;
use crate::name::name_is_valid;
use crate::refusal::position;

/// The name of the SDK, provided by the builder, on which every package may depend.
const SDK: &str = "sandstorm";
/// Keys of `[package]` that do not affect the compiled code.
const PACKAGE_KEYS: [&str; 16] = [
    "name",
    "version",
    "edition",
    "rust-version",
    "description",
    "license",
    "license-file",
    "authors",
    "repository",
    "homepage",
    "documentation",
    "readme",
    "keywords",
    "categories",
    "publish",
    "metadata",
];
/// Top-level tables that the server ignores.
const IGNORED_TABLES: [&str; 5] = ["dev-dependencies", "lints", "workspace", "profile", "badges"];

/// A package's manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// The package's own name.
    pub(crate) name: String,
    /// Its dependencies, without the SDK.
    pub(crate) dependencies: Vec<Dependency>,
}

/// A path dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// Name of the package.
    pub(crate) name: String,
    /// The path as given in the manifest.
    pub(crate) path: String,
}

impl Manifest {
    /// Reads a manifest; `file` is its path for refusals.
    ///
    /// # Errors
    /// Everything in it that the builder does not support.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Manifest, Vec<Refusal>> {
        let mut reading = Reading { file, text, refusals: Vec::new() };
        let manifest = match DeTable::parse(text) {
            Ok(table) => reading.manifest(table.get_ref()),
            Err(error) => {
                let span = error.span().unwrap_or_default();
                reading.refuse(span, format!("the manifest is no TOML: {}", error.message()), "mend it");
                None
            }
        };
        match manifest {
            Some(manifest) if reading.refusals.is_empty() => Ok(manifest),
            _ => Err(reading.refusals),
        }
    }
}

/// A manifest being read.
struct Reading<'t> {
    file: &'t str,
    text: &'t str,
    refusals: Vec<Refusal>,
}

impl Reading<'_> {
    fn refuse(&mut self, span: Range<usize>, what: impl Into<String>, instead: &str) {
        let (line, column) = position(self.text, span.start);
        self.refusals.push(Refusal::at(self.file, line, column, what, instead));
    }

    fn manifest(&mut self, table: &DeTable<'_>) -> Option<Manifest> {
        let mut manifest = Manifest { name: String::new(), dependencies: Vec::new() };
        for (key, value) in table {
            let name: &str = key.get_ref();
            match (name, value.get_ref()) {
                ("package", DeValue::Table(package)) => manifest.name = self.package(package),
                ("dependencies", DeValue::Table(list)) => {
                    for (name, value) in list {
                        self.dependency(name, value, &mut manifest);
                    }
                }
                ("lib", DeValue::Table(lib)) => self.library(lib),
                ("features", DeValue::Table(list)) if list.is_empty() => {}
                (name, _) if IGNORED_TABLES.contains(&name) => {}
                (name, _) => {
                    let what = format!("the server does not build with [{name}]");
                    self.refuse(key.span(), what, "keep to [package], [dependencies] and [dev-dependencies]");
                }
            }
        }
        if manifest.name.is_empty() && self.refusals.is_empty() {
            self.refuse(0..0, "the manifest gives no package a name", "add [package] with name = \"...\"");
        }
        (!manifest.name.is_empty()).then_some(manifest)
    }

    /// Reads `[package]`; returns the name, empty if there is no valid one.
    fn package(&mut self, package: &DeTable<'_>) -> String {
        let mut name = String::new();
        for (key, value) in package {
            let text: &str = key.get_ref();
            match (text, value.get_ref()) {
                ("name", DeValue::String(given)) if name_is_valid(given) => name = given.to_string(),
                ("name", _) => {
                    let instead = "use a to z, 0 to 9, - and _, at most 64 of them, a letter first";
                    self.refuse(value.span(), "this is no name for a package", instead);
                }
                ("edition", DeValue::String(edition)) if &**edition == "2024" => {}
                ("edition", DeValue::Table(table)) if inherits(table) => {}
                ("edition", _) => {
                    self.refuse(value.span(), "the server builds edition 2024", "edition = \"2024\"");
                }
                (text, _) if PACKAGE_KEYS.contains(&text) => {}
                ("build", _) => {
                    self.refuse(key.span(), "build scripts do not run on the server", "leave the key out");
                }
                (text, _) => {
                    let what = format!("the server does not know package.{text}");
                    self.refuse(key.span(), what, "leave the key out");
                }
            }
        }
        name
    }

    fn library(&mut self, library: &DeTable<'_>) {
        for (key, value) in library {
            let fine = match (&**key.get_ref(), value.get_ref()) {
                ("path", DeValue::String(path)) => &**path == "src/lib.rs",
                ("doctest" | "test" | "doc" | "bench", _) => true,
                _ => false,
            };
            if !fine {
                let what = format!("the server does not build with lib.{}", key.get_ref());
                self.refuse(key.span(), what, "write a plain library in src/lib.rs");
            }
        }
    }

    fn dependency(
        &mut self,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        manifest: &mut Manifest,
    ) {
        let name: &str = key.get_ref();
        if name == SDK {
            return;
        }
        let instead = "depend on sandstorm, and by path on packages that pass the same check";
        let DeValue::Table(table) = value.get_ref() else {
            let what = format!("{name} comes from a registry");
            return self.refuse(key.span(), what, instead);
        };
        if !name_is_valid(name) {
            return self.refuse(key.span(), "this is no name for a package", "rename the package");
        }
        let mut path = None;
        for (key, value) in table {
            match (&**key.get_ref(), value.get_ref()) {
                ("path", DeValue::String(text)) => path = Some(text.to_string()),
                ("version", _) => {}
                (other, _) => {
                    let what = format!("the dependency {name} has the key {other}");
                    self.refuse(key.span(), what, "give its path alone");
                }
            }
        }
        match path {
            Some(path) => manifest.dependencies.push(Dependency { name: name.to_string(), path }),
            None if self.refusals.is_empty() => {
                self.refuse(key.span(), format!("{name} is no path dependency"), instead);
            }
            None => {}
        }
    }
}

/// Returns whether a value is `{ workspace = true }`.
fn inherits(table: &DeTable<'_>) -> bool {
    table.len() == 1
        && table
            .iter()
            .all(|(key, value)| key.get_ref() == "workspace" && value.get_ref().as_bool() == Some(true))
}

#[cfg(test)]
mod tests;
