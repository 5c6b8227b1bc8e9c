//! Rules of attributes: the harmless ones, in their harmless form.

use syn::Attribute;
use syn::Expr;
use syn::Lit;
use syn::Meta;
use syn::Token;
use syn::punctuated::Punctuated;

use super::names;

/// The advice for most attributes.
const INSTEAD: &str = "leave it out; docs/extensions.md lists the attributes that work";

/// Checks an attribute; returns the fault and the alternative.
pub(super) fn check(attribute: &Attribute, at_crate_root: bool) -> Result<(), (String, &'static str)> {
    let name = attribute.path().get_ident().map(ToString::to_string).unwrap_or_default();
    let inner = matches!(attribute.style, syn::AttrStyle::Inner(_));
    let fine = match &*name {
        "doc" if is_text(&attribute.meta) => true,
        "doc" => {
            let what = "a doc attribute that is no text could read files of the server";
            return Err((what.into(), "write a doc comment"));
        }
        name if names::LINT_LEVELS.contains(&name) => names_lints(&attribute.meta),
        "no_std" => inner && at_crate_root && matches!(attribute.meta, Meta::Path(_)),
        "cfg_attr" => inner && at_crate_root && is_no_std_but_in_tests(attribute),
        _ if inner => false,
        "cold" | "default" | "non_exhaustive" => matches!(attribute.meta, Meta::Path(_)),
        "must_use" => matches!(attribute.meta, Meta::Path(_)) || is_text(&attribute.meta),
        "inline" => matches!(attribute.meta, Meta::Path(_)) || lists(attribute, &["always", "never"]),
        "derive" => return derive(attribute),
        "repr" => lists(attribute, &names::REPRESENTATIONS),
        "cfg" => {
            let what = "conditional compilation hides code from the check".to_string();
            return Err((what, "keep `#[cfg(test)]` to a `mod` at the top of a file"));
        }
        _ => false,
    };
    if fine { Ok(()) } else { Err((format!("the attribute {}", shown(attribute)), INSTEAD)) }
}

/// Returns the attribute's name as written, shortened.
fn shown(attribute: &Attribute) -> String {
    let path = attribute.path().segments.iter().map(|segment| segment.ident.to_string());
    let path: String = path.collect::<Vec<_>>().join("::").chars().take(40).collect();
    format!("`{path}`")
}

/// Returns whether it is `name = "text"`.
fn is_text(meta: &Meta) -> bool {
    let Meta::NameValue(pair) = meta else { return false };
    matches!(&pair.value, Expr::Lit(literal) if matches!(literal.lit, Lit::Str(_)))
}

/// Returns the parts of a list, if they are plain.
fn parts(attribute: &Attribute) -> Option<Punctuated<Meta, Token![,]>> {
    attribute.parse_args_with(Punctuated::parse_terminated).ok()
}

/// Returns whether it lists only these words.
fn lists(attribute: &Attribute, words: &[&str]) -> bool {
    parts(attribute).is_some_and(|parts| {
        parts.iter().all(|part| {
            matches!(part, Meta::Path(path) if path.get_ident().is_some_and(|word| words.contains(&&*word.to_string())))
        })
    })
}

/// Returns whether it lists only lints, and a reason.
fn names_lints(meta: &Meta) -> bool {
    let Meta::List(list) = meta else { return false };
    let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
    parts.is_ok_and(|parts| {
        parts.iter().all(|part| match part {
            Meta::Path(path) => path.segments.iter().all(|segment| segment.arguments.is_none()),
            other => other.path().is_ident("reason") && is_text(other),
        })
    })
}

/// Returns whether it is `cfg_attr(not(test), no_std)`.
fn is_no_std_but_in_tests(attribute: &Attribute) -> bool {
    let Some(parts) = parts(attribute) else { return false };
    let mut parts = parts.iter();
    let (Some(Meta::List(condition)), Some(Meta::Path(what)), None) =
        (parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    condition.path.is_ident("not") && condition.tokens.to_string() == "test" && what.is_ident("no_std")
}

fn derive(attribute: &Attribute) -> Result<(), (String, &'static str)> {
    if lists(attribute, &names::DERIVES) {
        return Ok(());
    }
    let instead = "derive Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd; write the rest";
    Err(("a derive of something else".into(), instead))
}
