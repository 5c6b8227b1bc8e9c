//! The sources that mutations begin with: the extensions of the project, and what the check lets pass or refuses.

use std::fs;
use std::path::{Path, PathBuf};

use builder::Package;

use crate::driver;
use crate::worker;

/// The file of a package that is mutated, and the others.
#[derive(Clone)]
pub struct Program {
    /// The name of the source that it comes of.
    pub origin: String,
    /// The paths and contents of all files.
    files: Vec<(String, Vec<u8>)>,
    /// The index of the mutated file.
    mutated: usize,
}

impl Program {
    /// A program of one file.
    pub fn of_text(origin: &str, text: &str) -> Self {
        let files = worker::package("program", text);
        Self { origin: origin.into(), mutated: files.len() - 1, files }
    }

    /// Returns the text of the mutated file.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.files[self.mutated].1).expect("sources are text")
    }

    /// Returns the same program with another text in that file.
    pub fn with_text(&self, text: String) -> Self {
        let mut program = self.clone();
        program.files[self.mutated].1 = text.into_bytes();
        program
    }

    /// Returns the path of that file in the package.
    pub fn path(&self) -> &str {
        &self.files[self.mutated].0
    }

    /// Returns the package; `None` if its files cannot be one.
    pub fn package(&self) -> Option<Package> {
        Package::new("program", self.files.clone()).ok()
    }
}

/// The sources, by what the check says of them.
pub struct Corpus {
    /// Extensions of the project, and sources that the check lets pass.
    pub accepted: Vec<Program>,
    /// Sources that the check of the text or of the MIR refuses, made to run what they define.
    pub refused: Vec<Program>,
}

impl Corpus {
    /// Reads the sources.
    pub fn read() -> Self {
        let mut accepted = Vec::new();
        let extensions = folder("ext");
        for path in sorted(&extensions) {
            let Ok(package) = Package::from_directory(&path) else { continue };
            if package.is_finished() {
                continue;
            }
            let files: Vec<_> =
                package.files().map(|(path, bytes)| (path.to_owned(), bytes.to_vec())).collect();
            for (index, (name, _)) in files.iter().enumerate() {
                if name.ends_with(".rs") && !name.ends_with("tests.rs") {
                    let origin = format!("{} {name}", path.file_name().unwrap_or_default().display());
                    accepted.push(Program { origin, files: files.clone(), mutated: index });
                }
            }
        }
        accepted.extend(texts("builder/tests/good").map(|(name, text)| Program::of_text(&name, &text)));
        let refused = texts("builder/tests/holes").chain(texts("builder/tests/mir"));
        // Without those that are only too deep: the parser of this process has the stack of a test.
        let refused =
            refused.filter(|(name, _)| !name.starts_with("deep_") && !name.starts_with("long_chain"));
        let refused = refused
            .filter_map(|(name, text)| Some(Program::of_text(&name, &driver::driven(&text)?)))
            .collect();
        Self { accepted, refused }
    }
}

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of sources");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// Names and texts of the sources of a folder.
fn texts(path: &str) -> impl Iterator<Item = (String, String)> {
    sorted(&folder(path)).into_iter().map(|path| {
        let name = path.file_stem().unwrap_or_default().display().to_string();
        (name, fs::read_to_string(&path).expect("a source is text"))
    })
}
