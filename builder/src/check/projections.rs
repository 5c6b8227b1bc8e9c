//! Finds projections: associated types of type parameters. Qualified paths are refused everywhere.

use proc_macro2::Span;
use syn::Generics;
use syn::TypePath;
use syn::spanned::Spanned;
use syn::visit;
use syn::visit::Visit;

/// Collects the projections of what it visits.
pub(super) struct Projections {
    /// The type parameters in scope, and `Self`.
    parameters: Vec<String>,
    /// The begins of the projections.
    pub(super) found: Vec<Span>,
}

impl Projections {
    /// Creates a collector for the header of an item with these generics.
    pub(super) fn new(generics: &Generics) -> Projections {
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
