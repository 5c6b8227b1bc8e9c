//! Arguments of calls: expressions that do not leave the call by `break` or `continue`.
//!
//! A call borrows its receiver before it evaluates its arguments, and rustc treats that borrow as not begun if an
//! argument jumps out of the call (#160598): then the same place is borrowed twice. Jumps whose loop or block lies
//! within the argument are permitted, and so is the end of the function, after which nothing of it is used.

use proc_macro2::Span;
use syn::Expr;
use syn::ExprBlock;
use syn::ExprBreak;
use syn::ExprContinue;
use syn::ExprForLoop;
use syn::ExprLoop;
use syn::ExprWhile;
use syn::Label;
use syn::Lifetime;
use syn::Macro;
use syn::spanned::Spanned;
use syn::visit;
use syn::visit::Visit;

use super::macros;

/// Returns the first jump out of an expression, if any.
pub(super) fn out_of(expression: &Expr) -> Option<Span> {
    let mut jumps = Jumps::default();
    jumps.visit_expr(expression);
    jumps.first
}

/// The loops and labels around the current place, within the expression.
#[derive(Default)]
struct Jumps {
    first: Option<Span>,
    loops: usize,
    labels: Vec<String>,
}

impl Jumps {
    /// Handles a jump to a label, or to the innermost loop.
    fn jump(&mut self, span: Span, label: Option<&Lifetime>) {
        let stays = match label {
            Some(label) => self.labels.iter().any(|known| label.ident == known),
            None => self.loops > 0,
        };
        if !stays {
            self.first = self.first.or(Some(span));
        }
    }

    /// Traverses the body of a label and, unless it is a block's, of a loop.
    fn within(&mut self, label: Option<&Label>, loops: usize, go: impl FnOnce(&mut Jumps)) {
        self.labels.extend(label.map(|label| label.name.ident.to_string()));
        self.loops += loops;
        go(self);
        self.loops -= loops;
        if label.is_some() {
            self.labels.pop();
        }
    }
}

impl<'a> Visit<'a> for Jumps {
    fn visit_expr_break(&mut self, jump: &'a ExprBreak) {
        self.jump(jump.span(), jump.label.as_ref());
        visit::visit_expr_break(self, jump);
    }

    fn visit_expr_continue(&mut self, jump: &'a ExprContinue) {
        self.jump(jump.span(), jump.label.as_ref());
    }

    fn visit_expr_loop(&mut self, within: &'a ExprLoop) {
        self.within(within.label.as_ref(), 1, |jumps| jumps.visit_block(&within.body));
    }

    fn visit_expr_while(&mut self, within: &'a ExprWhile) {
        self.within(within.label.as_ref(), 0, |jumps| jumps.visit_expr(&within.cond));
        self.within(within.label.as_ref(), 1, |jumps| jumps.visit_block(&within.body));
    }

    fn visit_expr_for_loop(&mut self, within: &'a ExprForLoop) {
        self.visit_expr(&within.expr);
        self.within(within.label.as_ref(), 1, |jumps| jumps.visit_block(&within.body));
    }

    fn visit_expr_block(&mut self, block: &'a ExprBlock) {
        self.within(block.label.as_ref(), 0, |jumps| jumps.visit_block(&block.block));
    }

    fn visit_macro(&mut self, invocation: &'a Macro) {
        // Unreadable arguments are refused at their place.
        let Ok(arguments) = macros::arguments(invocation) else { return };
        let mut jumps = Jumps { loops: self.loops, labels: self.labels.clone(), ..Jumps::default() };
        arguments.expressions.iter().chain(&arguments.guard).for_each(|part| jumps.visit_expr(part));
        self.first = self.first.or(jumps.first);
    }
}
