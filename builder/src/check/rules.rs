//! The rules of the syntax tree: the permitted items, types, patterns and expressions of an extension.
//!
//! Each `match` lists the permitted forms; all others are refused, including those that a later parser may add. The
//! rules of lifetimes exclude the shapes that rustc's open soundness bugs need (#25860, #57893, #84366, #84591, #85099,
//! #100051 and related ones): function pointers, trait objects, `for<'a>`, lifetime bounds, lifetimes in traits,
//! references to references, aliases and associated types with lifetimes, projections in impl headers. For guards and
//! indexes see `pure.rs`. For inferred constructs, which no source shows, see `mir.rs` of this crate.

use proc_macro2::Span;
use syn::Arm;
use syn::BinOp;
use syn::Expr;
use syn::ExprBinary;
use syn::ExprCall;
use syn::ExprIndex;
use syn::ExprMethodCall;
use syn::GenericParam;
use syn::Ident;
use syn::Item;
use syn::Lit;
use syn::Pat;
use syn::Type;
use syn::TypeParamBound;
use syn::UseTree;
use syn::WherePredicate;
use syn::spanned::Spanned;
use syn::visit;
use syn::visit::Visit;

use super::Crate;
use super::Findings;
use super::attributes;
use super::jumps;
use super::lifetimes;
use super::macros;
use super::names::{ABSENT_CRATES, LISTED_CRATES};
use super::paths;
use super::pure;

/// The rules applied to one file.
pub(super) struct Rules<'c> {
    crate_: &'c Crate<'c>,
    path: &'c str,
    findings: &'c mut Findings,
    /// The number of modules around the current place; 0 at the top of the file.
    pub(super) depth: usize,
}

impl<'c> Rules<'c> {
    /// Creates the rules for a file of a crate.
    pub(super) fn new(crate_: &'c Crate<'c>, path: &'c str, findings: &'c mut Findings) -> Rules<'c> {
        Rules { crate_, path, findings, depth: 0 }
    }

    /// Checks a whole file.
    pub(super) fn check_file(&mut self, tree: &syn::File) {
        let is_root = self.is_root();
        let has_no_std = tree
            .attrs
            .iter()
            .any(|attribute| attribute.path().is_ident("no_std") || attribute.path().is_ident("cfg_attr"));
        if is_root && !has_no_std {
            let what = "the crate would need the standard library, which artefacts do not have";
            self.findings.add(crate::Refusal::at(self.path, 1, 1, what, "begin with `#![no_std]`"));
        }
        self.visit_file(tree);
    }

    /// Returns whether this is the crate's root file.
    pub(super) fn is_root(&self) -> bool {
        self.path == format!("{}src/lib.rs", self.crate_.folder)
    }

    /// Checks the guard of an arm, or of `matches!`.
    fn check_guard(&mut self, guard: &Expr) {
        self.visit_expr(guard);
        if let Some(span) = pure::fault(guard) {
            let instead = "compute it with `let` before the `match`, or write an `if` inside the arm";
            self.refuse(span, "a match guard that does more than read and compare values", instead);
        }
    }

    /// Checks the arguments of a call, which borrows before it evaluates them: none may jump out of the call.
    fn check_arguments<'a>(&mut self, arguments: impl IntoIterator<Item = &'a Expr>) {
        if let Some(span) = arguments.into_iter().find_map(jumps::out_of) {
            let instead = "compute it with `let` first";
            self.refuse(span, "a `break` or `continue` within the arguments of a call", instead);
        }
    }

    /// Checks the name of a declaration, because the rules rely on the language's own names.
    fn check_declared(&mut self, name: &Ident) {
        if pure::PRIMITIVES.iter().any(|primitive| name == primitive) {
            self.refuse(name.span(), "something called like a primitive type", "choose another name");
        }
    }

    /// Refuses a place in this file.
    pub(super) fn refuse(&mut self, span: Span, what: impl Into<String>, instead: &str) {
        self.findings.refuse(self.path, span, what, instead);
    }
}

impl<'a> Visit<'a> for Rules<'_> {
    fn visit_attribute(&mut self, attribute: &'a syn::Attribute) {
        let at_crate_root = self.is_root() && self.depth == 0;
        if let Err((what, instead)) = attributes::check(attribute, at_crate_root) {
            self.refuse(attribute.span(), what, instead);
        }
    }

    fn visit_item(&mut self, item: &'a Item) {
        match item {
            Item::Enum(item) => self.check_declared(&item.ident),
            Item::Mod(item) => self.check_declared(&item.ident),
            Item::Struct(item) => self.check_declared(&item.ident),
            Item::Trait(item) => self.check_declared(&item.ident),
            Item::Type(item) => self.check_declared(&item.ident),
            _ => {}
        }
        match item {
            Item::Const(_) | Item::Enum(_) | Item::Fn(_) | Item::Struct(_) | Item::Use(_) => {}
            Item::ExternCrate(item) => self.check_extern_crate(item),
            Item::Impl(block) => self.check_impl(block),
            Item::Trait(declaration) => self.check_trait(declaration),
            Item::Type(alias) => {
                if alias.generics.lifetimes().next().is_some() {
                    let instead = "write the type out, or make it a struct";
                    self.refuse(alias.type_token.span(), "a type alias with a lifetime", instead);
                }
                self.check_projections(&alias.generics, |projections| projections.visit_type(&alias.ty));
            }
            Item::Mod(module) => {
                if LISTED_CRATES.iter().chain(&ABSENT_CRATES).any(|name| module.ident == name) {
                    let instead = "choose another name";
                    self.refuse(module.ident.span(), "a module called like a crate of the language", instead);
                }
                if module.unsafety.is_some() {
                    self.refuse(module.span(), "an unsafe module", "write a plain one");
                }
                self.depth += 1;
                visit::visit_item(self, item);
                self.depth -= 1;
                return;
            }
            Item::Macro(item) => {
                self.check_macro_item(item);
                item.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
                return;
            }
            Item::Static(item) => {
                self.refuse(
                    item.static_token.span(),
                    "a static keeps state outside the store",
                    "use a `const`, or put a record",
                );
            }
            Item::ForeignMod(item) => {
                self.refuse(
                    item.abi.extern_token.span(),
                    "an extern block",
                    "call what core, alloc and sandstorm offer",
                );
            }
            Item::Union(item) => {
                self.refuse(item.union_token.span(), "a union needs unsafe code", "write an enum")
            }
            other => self.refuse(other.span(), "this kind of item", "write functions, types and constants"),
        }
        visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if item.leading_colon.is_some() {
            self.refuse(item.span(), "a path that begins with `::`", "leave the colons out");
        }
        renamed(&item.tree, &mut |name| self.check_declared(name));
        for fault in paths::check_use(&item.tree, self.crate_.uses) {
            self.refuse(fault.span, fault.what, fault.instead);
        }
        item.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.leading_colon.is_some() {
            self.refuse(path.span(), "a path that begins with `::`", "leave the colons out");
        }
        let names: Vec<(String, Span)> =
            path.segments.iter().map(|segment| (segment.ident.to_string(), segment.ident.span())).collect();
        if let Err(fault) = paths::check(&names) {
            self.refuse(fault.span, fault.what, fault.instead);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'a syn::Macro) {
        match macros::arguments(invocation) {
            Ok(arguments) => {
                // The arguments live only for this call, so a separate visitor borrows them.
                let mut rules = Rules {
                    crate_: self.crate_,
                    path: self.path,
                    findings: self.findings,
                    depth: self.depth,
                };
                rules.check_arguments(&arguments.expressions);
                arguments.expressions.iter().for_each(|expression| rules.visit_expr(expression));
                arguments.pattern.iter().for_each(|pattern| rules.visit_pat(pattern));
                arguments.guard.iter().for_each(|guard| rules.check_guard(guard));
            }
            Err((what, instead)) => self.refuse(invocation.path.span(), what, instead),
        }
    }

    fn visit_signature(&mut self, signature: &'a syn::Signature) {
        if let Some(word) = &signature.constness {
            let instead = "leave `const` out; constants are written with operators of core";
            self.refuse(word.span(), "a const fn runs while the server compiles", instead);
        }
        if let Some(abi) = &signature.abi {
            self.refuse(abi.span(), "a function with a foreign ABI", "leave `extern` out");
        }
        if let Some(word) = &signature.unsafety {
            self.refuse(word.span(), "unsafe code is not for extensions", "write a safe function");
        }
        if let Some(variadic) = &signature.variadic {
            self.refuse(variadic.span(), "a variadic function", "take a slice");
        }
        if !pure::reads_only(signature) {
            let what = format!("a method called `{}` that could change what it is given", signature.ident);
            let instead = "take `&self`, and besides shared references and numbers, or choose another name";
            self.refuse(signature.ident.span(), what, instead);
        }
        visit::visit_signature(self, signature);
    }

    fn visit_arm(&mut self, arm: &'a Arm) {
        arm.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        self.visit_pat(&arm.pat);
        arm.guard.iter().for_each(|(_, guard)| self.check_guard(guard));
        self.visit_expr(&arm.body);
    }

    fn visit_expr_method_call(&mut self, call: &'a ExprMethodCall) {
        self.check_arguments(&call.args);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_call(&mut self, call: &'a ExprCall) {
        self.check_arguments(&call.args);
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_binary(&mut self, binary: &'a ExprBinary) {
        if !matches!(binary.op, BinOp::And(_) | BinOp::Or(_)) {
            self.check_arguments([&*binary.right]);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_path(&mut self, path: &'a syn::ExprPath) {
        match &path.qself {
            // `<[u8; 4]>::try_from`: the colons follow a type, and the type must pass.
            Some(of) if of.position == 0 => {
                path.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
                self.visit_type(&of.ty);
                path.path.segments.iter().for_each(|segment| self.visit_path_segment(segment));
            }
            _ => visit::visit_expr_path(self, path),
        }
    }

    fn visit_expr_index(&mut self, index: &'a ExprIndex) {
        visit::visit_expr_index(self, index);
        if let Some(span) = pure::fault(&index.index) {
            let instead = "compute it with `let` first";
            self.refuse(span, "an index that does more than read values and calculate", instead);
        }
    }

    fn visit_generic_param(&mut self, parameter: &'a GenericParam) {
        if let GenericParam::Type(parameter) = parameter {
            self.check_declared(&parameter.ident);
        }
        if let GenericParam::Lifetime(lifetime) = parameter
            && !lifetime.bounds.is_empty()
        {
            self.refuse(lifetime.span(), "a bound between lifetimes", "use one lifetime for both");
        }
        visit::visit_generic_param(self, parameter);
        if let GenericParam::Type(parameter) = parameter
            && let Some(default) = parameter.default.as_ref().filter(|kind| lifetimes::any_in_type(kind))
        {
            let what = "a lifetime in what a parameter is if nothing is said";
            self.refuse(default.span(), what, "write the type where it is used");
        }
    }

    fn visit_where_predicate(&mut self, predicate: &'a WherePredicate) {
        if !matches!(predicate, WherePredicate::Type(_)) {
            self.refuse(predicate.span(), "a bound between lifetimes", "use one lifetime for both");
        }
        visit::visit_where_predicate(self, predicate);
    }

    fn visit_bound_lifetimes(&mut self, lifetimes: &'a syn::BoundLifetimes) {
        self.refuse(lifetimes.span(), "`for<..>`", "leave the lifetimes of `Fn(&T)` to the compiler");
    }

    fn visit_type_param_bound(&mut self, bound: &'a TypeParamBound) {
        if !matches!(bound, TypeParamBound::Trait(_)) {
            let what = match bound {
                TypeParamBound::Lifetime(_) => "a lifetime as a bound",
                _ => "`use<..>` as a bound",
            };
            self.refuse(bound.span(), what, "leave it out; the compiler finds what a type borrows");
        }
        visit::visit_type_param_bound(self, bound);
    }

    fn visit_trait_bound_modifier(&mut self, _: &'a syn::TraitBoundModifier) {}

    fn visit_angle_bracketed_generic_arguments(
        &mut self,
        arguments: &'a syn::AngleBracketedGenericArguments,
    ) {
        if let Some((what, instead)) = lifetimes::fault_of_arguments(arguments) {
            self.refuse(arguments.span(), what, instead);
        }
        visit::visit_angle_bracketed_generic_arguments(self, arguments);
    }

    fn visit_type_path(&mut self, path: &'a syn::TypePath) {
        if path.qself.is_some() {
            let instead = "write `T::Item` of a type parameter `T`, or the type itself";
            self.refuse(path.span(), "a qualified path to a type (`<..>::..`)", instead);
        }
        visit::visit_type_path(self, path);
    }

    fn visit_type(&mut self, kind: &'a Type) {
        match kind {
            Type::Array(_)
            | Type::Group(_)
            | Type::ImplTrait(_)
            | Type::Infer(_)
            | Type::Never(_)
            | Type::Paren(_)
            | Type::Path(_)
            | Type::Slice(_)
            | Type::Tuple(_) => {}
            Type::Reference(reference) => {
                if let Some((what, instead)) = lifetimes::fault(reference) {
                    self.refuse(kind.span(), what, instead);
                }
            }
            Type::TraitObject(_) => {
                self.refuse(kind.span(), "a trait object (`dyn`)", "use a generic parameter or an enum");
            }
            Type::BareFn(_) => {
                self.refuse(
                    kind.span(),
                    "a function pointer type",
                    "use a parameter `impl Fn(..)` or an enum",
                );
            }
            Type::Ptr(_) => self.refuse(kind.span(), "a raw pointer", "use a reference"),
            other => {
                self.refuse(other.span(), "this kind of type", "use structs, enums, slices and references")
            }
        }
        visit::visit_type(self, kind);
    }

    fn visit_pat(&mut self, pattern: &'a Pat) {
        match pattern {
            Pat::Ident(_)
            | Pat::Lit(_)
            | Pat::Or(_)
            | Pat::Paren(_)
            | Pat::Path(_)
            | Pat::Range(_)
            | Pat::Reference(_)
            | Pat::Rest(_)
            | Pat::Slice(_)
            | Pat::Struct(_)
            | Pat::Tuple(_)
            | Pat::TupleStruct(_)
            | Pat::Type(_)
            | Pat::Wild(_) => {}
            other => self.refuse(other.span(), "this kind of pattern", "match on plain patterns"),
        }
        visit::visit_pat(self, pattern);
    }

    fn visit_lit(&mut self, literal: &'a Lit) {
        match literal {
            Lit::Str(_)
            | Lit::ByteStr(_)
            | Lit::Byte(_)
            | Lit::Char(_)
            | Lit::Int(_)
            | Lit::Float(_)
            | Lit::Bool(_) => {}
            other => self.refuse(other.span(), "this kind of literal", "write a string or a byte string"),
        }
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Array(_)
            | Expr::Assign(_)
            | Expr::Async(_)
            | Expr::Await(_)
            | Expr::Binary(_)
            | Expr::Block(_)
            | Expr::Break(_)
            | Expr::Call(_)
            | Expr::Cast(_)
            | Expr::Continue(_)
            | Expr::Field(_)
            | Expr::ForLoop(_)
            | Expr::Group(_)
            | Expr::If(_)
            | Expr::Index(_)
            | Expr::Infer(_)
            | Expr::Let(_)
            | Expr::Lit(_)
            | Expr::Loop(_)
            | Expr::Macro(_)
            | Expr::Match(_)
            | Expr::MethodCall(_)
            | Expr::Paren(_)
            | Expr::Path(_)
            | Expr::Range(_)
            | Expr::Reference(_)
            | Expr::Repeat(_)
            | Expr::Return(_)
            | Expr::Struct(_)
            | Expr::Try(_)
            | Expr::Tuple(_)
            | Expr::Unary(_)
            | Expr::While(_) => {}
            Expr::Closure(closure) => {
                if closure.constness.is_some() || closure.movability.is_some() {
                    self.refuse(expression.span(), "a const or static closure", "write a plain closure");
                }
            }
            Expr::Unsafe(_) => {
                let instead = "use the safe operations of core, alloc and sandstorm";
                self.refuse(expression.span(), "unsafe code is not for extensions", instead);
            }
            Expr::Const(_) => {
                let instead = "write `core::array::from_fn(|_| ..)`, or name a `const`";
                self.refuse(expression.span(), "a const block", instead);
            }
            Expr::RawAddr(_) => self.refuse(expression.span(), "a raw pointer", "use a reference"),
            other => self.refuse(other.span(), "this kind of expression", "write stable, plain Rust"),
        }
        visit::visit_expr(self, expression);
    }
}

/// Passes the new names of a `use` to `each`.
fn renamed(tree: &UseTree, each: &mut impl FnMut(&Ident)) {
    match tree {
        UseTree::Path(path) => renamed(&path.tree, each),
        UseTree::Rename(rename) => each(&rename.rename),
        UseTree::Group(group) => group.items.iter().for_each(|tree| renamed(tree, each)),
        UseTree::Name(_) | UseTree::Glob(_) => {}
    }
}
