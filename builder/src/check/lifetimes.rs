//! Rules of references in types.
//!
//! A named reference around another named lifetime implies that one outlives the other; rustc #25860 and related bugs
//! turn such implied bounds into references that live too long. Elided lifetimes cannot be related to anything, so
//! `&[&[u8]]` is permitted.

use syn::AngleBracketedGenericArguments;
use syn::GenericArgument;
use syn::Lifetime;
use syn::Type;
use syn::TypeReference;
use syn::visit;
use syn::visit::Visit;

/// Returns the fault of a reference type, and the alternative.
pub(super) fn fault(reference: &TypeReference) -> Option<(&'static str, &'static str)> {
    if matches!(&*reference.elem, Type::Reference(_)) {
        return Some(("a reference to a reference", "use one reference, or a slice of references"));
    }
    let lifetime = reference.lifetime.as_ref()?;
    if lifetime.ident == "static" {
        return (!is_plain(&reference.elem))
            .then_some(("a `'static` reference to more than text or numbers", "use a constant by value"));
    }
    let mut names = Names(Vec::new());
    names.visit_type(&reference.elem);
    let other = names.0.iter().any(|name| name != lifetime && name.ident != "_" && name.ident != "static");
    other.then_some((
        "a named reference around another lifetime",
        "leave one of the names out, or use one name for both",
    ))
}

/// Returns the fault of a generic type's arguments, and the alternative: a type may require that its contents outlive
/// its lifetime, as `&'a T` does.
pub(super) fn fault_of_arguments(
    arguments: &AngleBracketedGenericArguments,
) -> Option<(&'static str, &'static str)> {
    let lifetimes = || {
        arguments.args.iter().filter_map(|argument| match argument {
            GenericArgument::Lifetime(lifetime) if lifetime.ident != "_" => Some(lifetime),
            _ => None,
        })
    };
    let mut types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(kind) => Some(kind),
        _ => None,
    });
    if lifetimes().any(|lifetime| lifetime.ident == "static") {
        let fault = ("`'static` beside a type that is more than text or numbers", "leave the lifetime out");
        return types.any(|kind| !is_plain(kind)).then_some(fault);
    }
    let mut names = Names(Vec::new());
    types.for_each(|kind| names.visit_type(kind));
    let other =
        |name: &Lifetime| name.ident != "_" && name.ident != "static" && lifetimes().any(|own| own != name);
    names.0.iter().any(other).then_some((
        "a named lifetime beside a type with another one",
        "leave one of the names out, or use one name for both",
    ))
}

/// Returns whether a type mentions a lifetime or a reference.
pub(super) fn any_in_type(kind: &Type) -> bool {
    struct Any(bool);
    impl<'a> Visit<'a> for Any {
        fn visit_lifetime(&mut self, lifetime: &'a Lifetime) {
            self.0 |= lifetime.ident != "static";
        }
        fn visit_type_reference(&mut self, reference: &'a TypeReference) {
            let named_static = reference.lifetime.as_ref().is_some_and(|lifetime| lifetime.ident == "static");
            self.0 |= !named_static;
            visit::visit_type_reference(self, reference);
        }
    }
    let mut any = Any(false);
    any.visit_type(kind);
    any.0
}

/// Returns the number of a type's lifetimes, named or not.
pub(super) fn count(kind: &Type) -> usize {
    struct Count(usize);
    impl<'a> Visit<'a> for Count {
        fn visit_lifetime(&mut self, _: &'a Lifetime) {
            self.0 += 1;
        }
        fn visit_type_reference(&mut self, reference: &'a TypeReference) {
            self.0 += usize::from(reference.lifetime.is_none());
            visit::visit_type_reference(self, reference);
        }
    }
    let mut count = Count(0);
    count.visit_type(kind);
    count.0
}

/// Returns whether a type is, or contains, `impl Trait`.
pub(super) fn is_opaque(kind: &Type) -> bool {
    struct Opaque(bool);
    impl<'a> Visit<'a> for Opaque {
        fn visit_type_impl_trait(&mut self, _: &'a syn::TypeImplTrait) {
            self.0 = true;
        }
    }
    let mut opaque = Opaque(false);
    opaque.visit_type(kind);
    opaque.0
}

/// The lifetimes that a type names.
struct Names(Vec<Lifetime>);

impl<'a> Visit<'a> for Names {
    fn visit_lifetime(&mut self, lifetime: &'a Lifetime) {
        self.0.push(lifetime.clone());
    }
}

/// Returns whether a type is text, a primitive, or an array, slice or tuple of these: no parameters, no lifetimes.
fn is_plain(kind: &Type) -> bool {
    match kind {
        Type::Array(array) => is_plain(&array.elem),
        Type::Slice(slice) => is_plain(&slice.elem),
        Type::Tuple(tuple) => tuple.elems.iter().all(is_plain),
        Type::Paren(inner) => is_plain(&inner.elem),
        Type::Reference(reference) => {
            reference.lifetime.as_ref().is_none_or(|lifetime| lifetime.ident == "static")
                && is_plain(&reference.elem)
        }
        Type::Path(path) => {
            const PRIMITIVES: [&str; 17] = [
                "bool", "char", "f32", "f64", "i128", "i16", "i32", "i64", "i8", "isize", "str", "u128",
                "u16", "u32", "u64", "u8", "usize",
            ];
            let name = path.path.get_ident().map(ToString::to_string).unwrap_or_default();
            path.qself.is_none() && PRIMITIVES.contains(&&*name)
        }
        _ => false,
    }
}
