//! Reads `sandstorm::extension!` and finds the functions that it names.

use syn::Attribute;
use syn::Expr;
use syn::Ident;
use syn::Item;
use syn::Lit;
use syn::Meta;
use syn::Token;
use syn::parse::Parse;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;

use super::Findings;
use super::modules::File;
use crate::Function;
use crate::Mode;
use crate::Refusal;
use crate::limits;

const INSTEAD: &str = "write `sandstorm::extension! { read NAME, write NAME }`";

/// One line of the macro.
struct Entry {
    mode: Ident,
    name: Ident,
}

impl Parse for Entry {
    fn parse(input: ParseStream<'_>) -> syn::Result<Entry> {
        Ok(Entry { mode: input.parse()?, name: input.parse()? })
    }
}

/// Returns whether an item is `sandstorm::extension! { .. }`.
pub(super) fn is_extension(item: &syn::ItemMacro) -> bool {
    let names: Vec<String> = item.mac.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    names == ["sandstorm", "extension"] && item.ident.is_none() && item.mac.path.leading_colon.is_none()
}

/// Returns the functions that the root file of a crate exposes. The extension itself must expose some; a package that
/// it depends on must not.
pub(super) fn find(
    folder: &str,
    root: Option<&File>,
    is_the_extension: bool,
    findings: &mut Findings,
) -> Vec<Function> {
    let Some(root) = root else { return Vec::new() };
    let mut functions = Vec::new();
    let mut found = 0;
    for item in &root.tree.items {
        let Item::Macro(item) = item else { continue };
        if !is_extension(item) {
            continue;
        }
        found += 1;
        if !is_the_extension || found > 1 {
            let what = "extension! stands here too";
            findings.refuse(&root.path, item.mac.path.span(), what, "write it once, in the extension itself");
        } else {
            functions = entries(root, item, findings);
        }
    }
    if is_the_extension && found == 0 {
        let what = "the extension names no function that callers may invoke";
        findings.add(Refusal::of(&format!("{folder}src/lib.rs"), what, INSTEAD));
    }
    functions
}

fn entries(root: &File, item: &syn::ItemMacro, findings: &mut Findings) -> Vec<Function> {
    let path = &root.path;
    let entries = match item.mac.parse_body_with(Punctuated::<Entry, Token![,]>::parse_terminated) {
        Ok(entries) if !entries.is_empty() && entries.len() <= limits::FUNCTIONS_MAX => entries,
        Ok(entries) => {
            let what = format!("an extension of {} functions", entries.len());
            findings.refuse(path, item.mac.path.span(), what, "name 1 to 64 functions");
            return Vec::new();
        }
        Err(error) => {
            findings.refuse(path, error.span(), "this is no list of functions", INSTEAD);
            return Vec::new();
        }
    };
    let mut functions: Vec<Function> = Vec::new();
    for entry in entries {
        let name = entry.name.to_string();
        let mode = match &*entry.mode.to_string() {
            "read" => Mode::Read,
            "write" => Mode::Write,
            _ => {
                findings.refuse(path, entry.mode.span(), "a function is `read` or `write`", INSTEAD);
                continue;
            }
        };
        if name.len() > limits::NAME_BYTES_MAX || functions.iter().any(|function| function.name == name) {
            let what = "the name is too long or there twice";
            findings.refuse(path, entry.name.span(), what, "use at most 64 letters, once");
            continue;
        }
        match declaration(root, &name) {
            Some(declaration) => {
                let doc = doc(&declaration.attrs);
                functions.push(Function { name, mode, doc });
            }
            None => {
                let what = format!("there is no `async fn {name}` in this file");
                let instead = "write `async fn NAME(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) \
                               -> Result<(), Error>`";
                findings.refuse(path, entry.name.span(), what, instead);
            }
        }
    }
    functions
}

/// Returns the asynchronous function with this name at the root of a file. The compiler checks its types.
fn declaration<'f>(root: &'f File, name: &str) -> Option<&'f syn::ItemFn> {
    root.tree.items.iter().find_map(|item| match item {
        Item::Fn(function) if function.sig.ident == name => {
            let signature = &function.sig;
            let plain = signature.asyncness.is_some() && signature.inputs.len() == 3;
            plain.then_some(function)
        }
        _ => None,
    })
}

/// Returns the text of doc comments.
fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(syn::ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_string()),
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join("\n").trim().to_string()
}
