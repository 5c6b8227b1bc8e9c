//! The places of match guards and index expressions in a checked text. The MIR shows what they borrow or move, which
//! the source does not (`pure.rs`, and `mir.rs` of this crate).

use syn::Arm;
use syn::Expr;
use syn::ExprIndex;
use syn::Macro;
use syn::spanned::Spanned;
use syn::visit;
use syn::visit::Visit;

use super::macros;
use crate::checked::Guard;

/// Returns all of a file, or `None` when the text cannot be read.
pub(super) fn all(file: &str, text: &str) -> Option<Vec<Guard>> {
    let tree = syn::parse_file(text).ok()?;
    let mut guards = Guards { file, found: Vec::new() };
    guards.visit_file(&tree);
    Some(guards.found)
}

/// The guards found so far.
struct Guards<'f> {
    file: &'f str,
    found: Vec<Guard>,
}

impl Guards<'_> {
    fn add(&mut self, expression: &Expr) {
        let (from, to) = (expression.span().start(), expression.span().end());
        self.found.push(Guard {
            file: self.file.to_owned(),
            from: (from.line, from.column + 1),
            to: (to.line, to.column + 1),
        });
    }
}

impl<'a> Visit<'a> for Guards<'_> {
    fn visit_arm(&mut self, arm: &'a Arm) {
        arm.guard.iter().for_each(|(_, guard)| self.add(guard));
        visit::visit_arm(self, arm);
    }

    fn visit_expr_index(&mut self, index: &'a ExprIndex) {
        self.add(&index.index);
        visit::visit_expr_index(self, index);
    }

    fn visit_macro(&mut self, invocation: &'a Macro) {
        // Unreadable arguments were refused.
        let Ok(arguments) = macros::arguments(invocation) else { return };
        arguments.guard.iter().for_each(|guard| self.add(guard));
        let mut within = Guards { file: self.file, found: Vec::new() };
        arguments.expressions.iter().chain(&arguments.guard).for_each(|part| within.visit_expr(part));
        self.found.append(&mut within.found);
    }
}
