//! The allow-list check of an extension's source, and the check of a finished module.
//!
//! `forbid(unsafe_code)` alone does not contain a hostile author: safe attributes, macros and a few soundness bugs of
//! the compiler reach beyond it. So the source is parsed, and everything that is not listed as harmless is refused,
//! with its place and an alternative. Accepted source is passed on as exactly the tokens that were checked
//! ([`Checked`]).
//!
//! ```text
//! text -> tokens (limits, words) -> unit tests cut out -> syntax tree (rules) -> tokens -> text
//! ```
//!
//! Crafted text can crash the parser, so a server runs the check in the sandbox
//! ([`Toolchain::check`](crate::Toolchain::check)).

mod attributes;
mod crates;
mod emit;
mod entries;
mod guards;
mod items;
mod jumps;
mod lifetimes;
mod macros;
mod modules;
mod names;
mod paths;
mod pure;
mod rules;
mod tokens;

use std::thread;

use crate::Checked;
use crate::Package;
use crate::Refusal;
use crate::functions;
use crate::limits;
use crate::module;
use crate::package::FinishedModule;
use crate::package::MODULE;

/// Checks a package within this process.
///
/// For sources written by the user of this process: a crafted source can overflow the parser's stack and crash the
/// process. A server uses [`Toolchain::check`](crate::Toolchain::check).
///
/// # Errors
/// The refusals, at most [`limits::REFUSALS_MAX`], in the order of their places.
pub fn check(package: &Package) -> Result<Checked, Vec<Refusal>> {
    if let Some(finished) = package.finished() {
        return check_finished(finished);
    }
    let checked = thread::scope(|scope| {
        let run = || crates::check(package);
        match thread::Builder::new().stack_size(limits::PARSER_STACK_BYTES).spawn_scoped(scope, run) {
            Ok(checking) => checking.join().map_err(|_| "the check of the source panicked".to_string()),
            Err(error) => Err(format!("no thread to check the source in: {error}")),
        }
    });
    checked.unwrap_or_else(|what| Err(vec![Refusal::of("", what, "report this source")]))
}

/// Checks a finished module: its list of functions, and whether a server can give it what it wants.
fn check_finished(finished: &FinishedModule) -> Result<Checked, Vec<Refusal>> {
    let functions = functions::parse(&finished.functions)?;
    let names: Vec<String> = functions.iter().map(|function| function.name.clone()).collect();
    module::finish(&finished.module, &names).map_err(|what| {
        vec![Refusal::of(MODULE, what, "build a module of the border that docs/modules.md describes")]
    })?;
    Ok(Checked { sources: Vec::new(), functions })
}

pub(crate) use pure::PRIMITIVES;

/// The files of the rules with their texts. A package that passed other rules must pass these before it runs.
pub(crate) const RULES: [(&str, &str); 15] = [
    ("attributes.rs", include_str!("check/attributes.rs")),
    ("crates.rs", include_str!("check/crates.rs")),
    ("emit.rs", include_str!("check/emit.rs")),
    ("entries.rs", include_str!("check/entries.rs")),
    ("guards.rs", include_str!("check/guards.rs")),
    ("items.rs", include_str!("check/items.rs")),
    ("jumps.rs", include_str!("check/jumps.rs")),
    ("lifetimes.rs", include_str!("check/lifetimes.rs")),
    ("macros.rs", include_str!("check/macros.rs")),
    ("modules.rs", include_str!("check/modules.rs")),
    ("names.rs", include_str!("check/names.rs")),
    ("paths.rs", include_str!("check/paths.rs")),
    ("pure.rs", include_str!("check/pure.rs")),
    ("rules.rs", include_str!("check/rules.rs")),
    ("tokens.rs", include_str!("check/tokens.rs")),
];

/// The description of a crate before its files are read.
struct Crate<'p> {
    package: &'p Package,
    /// Its folder in the package: empty, or `deps/NAME/`.
    folder: &'p str,
    /// The crates that it may name in addition to `core`, `alloc` and the SDK.
    uses: &'p [String],
}

/// The refusals found so far.
#[derive(Debug, Default)]
struct Findings {
    refusals: Vec<Refusal>,
}

impl Findings {
    /// Adds a refusal at a place in a file; a place is refused once.
    fn refuse(&mut self, file: &str, span: proc_macro2::Span, what: impl Into<String>, instead: &str) {
        let place = span.start();
        self.add(Refusal::at(file, place.line, place.column + 1, what, instead));
    }

    /// Adds a refusal.
    fn add(&mut self, refusal: Refusal) {
        let known = |other: &Refusal| {
            refusal.line > 0
                && (&other.file, other.line, other.column) == (&refusal.file, refusal.line, refusal.column)
        };
        if self.refusals.len() < limits::REFUSALS_MAX && !self.refusals.iter().any(known) {
            self.refusals.push(refusal);
        }
    }

    /// Returns the refusals in the order of their places; `Ok` when there are none.
    fn finish(mut self) -> Result<(), Vec<Refusal>> {
        self.refusals.sort();
        if self.refusals.is_empty() { Ok(()) } else { Err(self.refusals) }
    }
}

#[cfg(test)]
mod tests;
