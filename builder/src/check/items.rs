//! Rules of items: impls, traits, `extern crate`, macros in the position of items.
//!
//! Projections are associated types of type parameters; qualified paths are refused everywhere.

use proc_macro2::Span;
use syn::Generics;
use syn::ImplItem;
use syn::TraitBoundModifier;
use syn::TraitItem;
use syn::TypeParamBound;
use syn::TypePath;
use syn::TypeReference;
use syn::spanned::Spanned;
use syn::visit;
use syn::visit::Visit;

use super::entries;
use super::lifetimes;
use super::rules::Rules;

impl Rules<'_> {
    pub(super) fn check_impl(&mut self, block: &syn::ItemImpl) {
        if block.unsafety.is_some() || block.defaultness.is_some() {
            self.refuse(block.impl_token.span(), "an unsafe or default impl", "write a plain impl");
        }
        if block.trait_.as_ref().is_some_and(|(negative, _, _)| negative.is_some()) {
            self.refuse(block.impl_token.span(), "a negative impl", "leave it out");
        }
        if let Some((_, path, _)) = &block.trait_ {
            let mut mutable = MutableReferences::default();
            mutable.visit_path(path);
            mutable.visit_type(&block.self_ty);
            if let Some(span) = mutable.first {
                let instead = "implement it for the type itself";
                self.refuse(span, "a trait for a mutable reference", instead);
            }
        }
        let drops = |item: &ImplItem| matches!(item, ImplItem::Fn(function) if function.sig.ident == "drop");
        if block.trait_.is_some() && block.items.iter().any(drops) {
            self.check_destructor(block);
        }
        self.check_projections(&block.generics, |projections| {
            block.trait_.iter().for_each(|(_, path, _)| projections.visit_path(path));
            projections.visit_type(&block.self_ty);
        });
        for item in &block.items {
            match item {
                ImplItem::Const(_) | ImplItem::Fn(_) => {}
                ImplItem::Type(alias) if lifetimes::any_in_type(&alias.ty) => {
                    let instead = "write a method of the type's own that returns the reference";
                    self.refuse(alias.type_token.span(), "an associated type with a lifetime", instead);
                }
                // rustc assumes such a bound when it checks the trait's requirements on the type, and does not
                // require it of users of the type (#135011, #135246).
                ImplItem::Type(alias) if alias.generics.where_clause.is_some() => {
                    let instead = "write the bound into the header of the impl";
                    self.refuse(alias.type_token.span(), "an associated type with bounds", instead);
                }
                ImplItem::Type(alias) if alias.generics.params.is_empty() => {}
                other => self.refuse(other.span(), "this item in an impl", "write functions and constants"),
            }
        }
    }

    /// Checks an impl of `Drop`. A destructor runs for a variable of whatever type rustc inferred, and rustc does not
    /// check that this type satisfies the bounds of its declaration. A part of `D<Holder<'a>, &'a [u8]>` may have been
    /// inferred to live shorter, and then the bound between the two is false. A single lifetime cannot split, and
    /// parameters without bounds promise nothing.
    fn check_destructor(&mut self, block: &syn::ItemImpl) {
        let is_plain = |bound: &TypeParamBound| matches!(bound, TypeParamBound::Trait(of) if matches!(of.modifier, TraitBoundModifier::Maybe(_)));
        let has_bounds = block.generics.where_clause.is_some()
            || !block.generics.type_params().all(|parameter| parameter.bounds.iter().all(is_plain));
        if has_bounds || lifetimes::count(&block.self_ty) > 1 {
            let instead = "leave them out of the type, and give bounds to its methods";
            let what = "a destructor of a type with bounds or several lifetimes";
            self.refuse(block.impl_token.span(), what, instead);
        }
    }

    /// Refuses associated types of parameters (`T::Item`) in what `visit` traverses: rustc assumes that the types in an
    /// impl's header are well-formed, and does not check it where a projection hides them (#100051).
    pub(super) fn check_projections(&mut self, generics: &Generics, visit: impl FnOnce(&mut Projections)) {
        let mut projections = Projections::new(generics);
        visit(&mut projections);
        for span in projections.found {
            let instead = "give the type a parameter of its own: `impl<I: Iterator<Item = T>, T> ..`";
            self.refuse(span, "an associated type in an impl header or a type alias", instead);
        }
    }

    pub(super) fn check_trait(&mut self, declaration: &syn::ItemTrait) {
        if declaration.unsafety.is_some() || declaration.auto_token.is_some() {
            self.refuse(declaration.trait_token.span(), "an unsafe or auto trait", "write a plain trait");
        }
        if declaration.generics.lifetimes().next().is_some() {
            let instead = "give the lifetimes to the methods";
            self.refuse(declaration.generics.span(), "a trait with lifetime parameters", instead);
        }
        for item in &declaration.items {
            match item {
                TraitItem::Const(_) => {}
                TraitItem::Fn(function) => self.check_trait_function(&function.sig),
                TraitItem::Type(item) => {
                    let instead = "use a type parameter of a function";
                    self.refuse(item.type_token.span(), "a trait with an associated type", instead);
                }
                other => self.refuse(other.span(), "this item in a trait", "write functions and constants"),
            }
        }
    }

    /// Checks a trait's function. A method that returns an opaque type is a disguised associated type with lifetimes.
    fn check_trait_function(&mut self, signature: &syn::Signature) {
        let opaque = match &signature.output {
            syn::ReturnType::Default => false,
            syn::ReturnType::Type(_, kind) => lifetimes::is_opaque(kind),
        };
        if opaque || signature.asyncness.is_some() {
            let instead = "name the type, or write a function beside the trait";
            self.refuse(
                signature.ident.span(),
                "a trait method that answers `impl Trait` or is async",
                instead,
            );
        }
    }

    pub(super) fn check_extern_crate(&mut self, item: &syn::ItemExternCrate) {
        if item.ident != "alloc" || item.rename.is_some() {
            let instead = "name packages in Cargo.toml; only `extern crate alloc;` is written";
            self.refuse(item.extern_token.span(), format!("`extern crate {}`", item.ident), instead);
        }
    }

    pub(super) fn check_macro_item(&mut self, item: &syn::ItemMacro) {
        if entries::is_extension(item) {
            if !self.is_root() || self.depth > 0 {
                self.refuse(
                    item.mac.path.span(),
                    "extension! in a module",
                    "write it at the root of src/lib.rs",
                );
            }
            return;
        }
        let instead = "write items out; only sandstorm::extension! makes items";
        self.refuse(item.mac.path.span(), "a macro in the place of an item", instead);
    }
}

/// The first mutable reference in the header of an impl.
#[derive(Default)]
struct MutableReferences {
    first: Option<Span>,
}

impl<'a> Visit<'a> for MutableReferences {
    fn visit_type_reference(&mut self, reference: &'a TypeReference) {
        if reference.mutability.is_some() {
            self.first = self.first.or(Some(reference.span()));
        }
        visit::visit_type_reference(self, reference);
    }
}

/// Collects the projections of what it visits.
pub(super) struct Projections {
    /// The type parameters in scope, and `Self`.
    parameters: Vec<String>,
    /// The begins of the projections.
    found: Vec<Span>,
}

impl Projections {
    /// Creates a collector for the header of an item with these generics.
    fn new(generics: &Generics) -> Projections {
        let mut parameters = vec!["Self".to_string()];
        parameters.extend(generics.type_params().map(|parameter| parameter.ident.to_string()));
        Projections { parameters, found: Vec::new() }
    }
}

impl<'a> Visit<'a> for Projections {
    fn visit_type_path(&mut self, kind: &'a TypePath) {
        let first = kind.path.segments.first().map(|segment| segment.ident.to_string());
        let of_parameter =
            kind.path.segments.len() > 1 && first.is_some_and(|name| self.parameters.contains(&name));
        if of_parameter {
            self.found.push(kind.span());
        }
        visit::visit_type_path(self, kind);
    }
}
