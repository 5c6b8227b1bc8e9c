//! Rules of paths and `use`: which crates and which of their parts may be named, and how.
//!
//! The parts of `core`, `alloc` and the SDK are allow-lists. They apply wherever the crate's name appears in a path
//! (`crate::alloc::..` reaches it too). A `use` may neither rename such a crate nor import all of it, so that the name
//! in the path is always the crate.

use proc_macro2::Span;
use syn::UseTree;

use super::names;

/// The fault of a path, and the alternative.
pub(super) struct Fault {
    pub(super) span: Span,
    pub(super) what: String,
    pub(super) instead: &'static str,
}

/// Checks the names of a path, in order.
pub(super) fn check(names: &[(String, Span)]) -> Result<(), Fault> {
    for pair in names.windows(2) {
        let [(name, span), (part, part_span)] = pair else { continue };
        if names::ABSENT_CRATES.contains(&&**name) {
            let what = format!("`{name}` does not exist in an extension");
            return Err(Fault { span: *span, what, instead: "use core or alloc" });
        }
        if names::LISTED_CRATES.contains(&&**name) && !names::parts_of(name).contains(&&**part) {
            let what = format!("`{name}::{part}` is not for extensions");
            return Err(Fault {
                span: *part_span,
                what,
                instead: "keep to the parts that docs/extensions.md lists",
            });
        }
    }
    Ok(())
}

/// Checks the imports of a `use`. `crates` are those that the package may name in addition to the listed ones.
pub(super) fn check_use(tree: &UseTree, crates: &[String]) -> Vec<Fault> {
    let mut faults = Vec::new();
    walk(tree, &mut Vec::new(), crates, &mut faults);
    faults
}

fn walk(tree: &UseTree, prefix: &mut Vec<(String, Span)>, crates: &[String], faults: &mut Vec<Fault>) {
    match tree {
        UseTree::Path(path) => {
            prefix.push((path.ident.to_string(), path.ident.span()));
            walk(&path.tree, prefix, crates, faults);
            prefix.pop();
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                walk(tree, prefix, crates, faults);
            }
        }
        UseTree::Name(name) => leaf(prefix, (name.ident.to_string(), name.ident.span()), faults),
        UseTree::Rename(rename) => {
            let new = rename.rename.to_string();
            let listed =
                |name: &str| names::LISTED_CRATES.contains(&name) || crates.iter().any(|used| used == name);
            let own = prefix.first().is_some_and(|(name, _)| matches!(&**name, "crate" | "self" | "super"));
            if new != "_"
                && (!own
                    || names::MACROS.contains(&&*new)
                    || listed(&new)
                    || listed(&rename.ident.to_string()))
            {
                let what = format!("`as {new}` hides what is imported");
                let instead = "import it under its own name; items of your own may be renamed";
                faults.push(Fault { span: rename.rename.span(), what, instead });
            }
            leaf(prefix, (rename.ident.to_string(), rename.ident.span()), faults);
        }
        UseTree::Glob(glob) => {
            let whole = prefix.last().is_none_or(|(name, _)| names::LISTED_CRATES.contains(&&**name));
            if whole {
                let what = "an import of everything in a crate".to_string();
                faults.push(Fault { span: glob.star_token.spans[0], what, instead: "name what you need" });
            }
            faults.extend(check(prefix).err());
        }
    }
}

/// Checks one imported name after its prefix; `self` stands for the prefix.
fn leaf(prefix: &mut Vec<(String, Span)>, name: (String, Span), faults: &mut Vec<Fault>) {
    if names::ABSENT_CRATES.contains(&&*name.0) && prefix.is_empty() {
        let what = format!("`{}` does not exist in an extension", name.0);
        faults.push(Fault { span: name.1, what, instead: "use core or alloc" });
        return;
    }
    let is_self = name.0 == "self";
    if !is_self {
        prefix.push(name);
    }
    faults.extend(check(prefix).err());
    if !is_self {
        prefix.pop();
    }
}
