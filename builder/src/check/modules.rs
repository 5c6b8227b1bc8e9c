//! The check of one crate's files, from `src/lib.rs` along `mod name;`.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use syn::spanned::Spanned;

use super::Crate;
use super::Findings;
use super::emit;
use super::guards;
use super::rules::Rules;
use super::tokens;
use crate::Refusal;
use crate::checked::Guard;

/// A checked file.
pub(super) struct File {
    pub(super) path: String,
    pub(super) tree: syn::File,
    /// The checked tokens as text.
    pub(super) text: String,
    /// Guards and indexes in that text.
    pub(super) guards: Vec<Guard>,
}

/// Checks every file that the crate's modules name; the root is the first.
pub(super) fn check(wanted: &Crate<'_>, findings: &mut Findings) -> Vec<File> {
    let mut files: Vec<File> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut waiting = vec![(format!("{}src/lib.rs", wanted.folder), format!("{}src/", wanted.folder))];
    while let Some((path, children)) = waiting.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let Some(text) = wanted.package.file(&path) else {
            findings.add(Refusal::of(&path, "the file of a module is not there", "add it to the package"));
            continue;
        };
        let Some((tokens, tree)) = parse(&path, text, findings) else { continue };
        Rules::new(wanted, &path, findings).check_file(&tree);
        module_files(&tree.items, &children, &path, findings, &mut waiting);
        let text = emit::text(tokens);
        let Some(guards) = guards::all(&path, &text) else {
            findings.add(Refusal::of(
                &path,
                "the check cannot read what it made of this",
                "report this source",
            ));
            continue;
        };
        files.push(File { text, guards, path, tree });
    }
    files
}

/// Returns the checked tokens and the syntax tree of a file.
fn parse(path: &str, text: &str, findings: &mut Findings) -> Option<(TokenStream, syn::File)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let tokens = tokens::read(path, text, findings)?;
    match syn::parse2::<syn::File>(tokens.clone()) {
        Ok(tree) => Some((tokens, tree)),
        Err(error) => {
            let what = format!("this is no Rust that the check understands: {error}");
            findings.refuse(path, error.span(), what, "mend the syntax; `cargo check` says more");
            None
        }
    }
}

/// Adds the files that `mod name;` items refer to.
fn module_files(
    items: &[syn::Item],
    folder: &str,
    path: &str,
    findings: &mut Findings,
    waiting: &mut Vec<(String, String)>,
) {
    for item in items {
        let syn::Item::Mod(module) = item else { continue };
        let children = format!("{folder}{}/", module.ident);
        match &module.content {
            Some((_, items)) => module_files(items, &children, path, findings, waiting),
            None if module.ident == "mod" || module.ident == "lib" => {
                findings.refuse(path, module.span(), "a module with a special file name", "rename it");
            }
            None => waiting.push((format!("{folder}{}.rs", module.ident), children)),
        }
    }
}
