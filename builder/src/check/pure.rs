//! Match guards and index expressions: expressions that cannot change the matched or indexed value.
//!
//! rustc guards the place that a `match` or an index reads by borrows that it drops too early if a guard or an index
//! assigns, diverges, suspends, or moves a part out (#160525, #160599, #161578, #161852). A list of bad forms would
//! miss some, so this is the list of good ones: nothing on it assigns or borrows mutably. It includes calls of
//! [`READING_METHODS`], because an extension's own methods with these names must take `&self` and nothing mutable
//! ([`reads_only`]), and operators, because no header of an impl names a mutable reference (`Rules::check_impl`). rustc
//! silently reborrows a mutable variable wherever one is expected, also through type parameters, which no source shows.
//! The MIR shows it (`mir.rs` of this crate): within the place of a guard or an index (`guards.rs`) nothing is borrowed
//! mutably or moved. Where one returns, rustc itself refuses its changes; so nothing may diverge except in macros of
//! core, neither a call nor a value.

use proc_macro2::Span;
use syn::BinOp;
use syn::Expr;
use syn::FnArg;
use syn::Signature;
use syn::Type;
use syn::UnOp;
use syn::spanned::Spanned;

/// Methods that guards and indexes may call: those of `core` and `alloc` take `&self` or a number, and return.
const READING_METHODS: [&str; 38] = [
    "abs_diff",
    "as_bytes",
    "as_str",
    "contains",
    "contains_key",
    "count_ones",
    "ends_with",
    "eq_ignore_ascii_case",
    "is_alphabetic",
    "is_alphanumeric",
    "is_ascii",
    "is_ascii_alphabetic",
    "is_ascii_alphanumeric",
    "is_ascii_digit",
    "is_ascii_hexdigit",
    "is_ascii_lowercase",
    "is_ascii_punctuation",
    "is_ascii_uppercase",
    "is_ascii_whitespace",
    "is_empty",
    "is_err",
    "is_finite",
    "is_nan",
    "is_none",
    "is_numeric",
    "is_ok",
    "is_some",
    "is_whitespace",
    "len",
    "max",
    "min",
    "rem_euclid",
    "saturating_add",
    "saturating_sub",
    "starts_with",
    "trim",
    "wrapping_add",
    "wrapping_sub",
];
/// The primitive types. Guards and indexes may call their `from`, and methods with the names above may take them. No
/// item of an extension has one of these names.
pub(crate) const PRIMITIVES: [&str; 17] = [
    "bool", "char", "f32", "f64", "i128", "i16", "i32", "i64", "i8", "isize", "str", "u128", "u16", "u32",
    "u64", "u8", "usize",
];

/// Returns the first part of a guard or an index that could change something, if any.
pub(super) fn fault(expression: &Expr) -> Option<Span> {
    let parts: Vec<&Expr> = match expression {
        Expr::Lit(_) | Expr::Path(_) => Vec::new(),
        Expr::Binary(binary) if !assigns(&binary.op) => vec![&binary.left, &binary.right],
        Expr::Call(call) if makes_a_number(&call.func) => call.args.iter().collect(),
        Expr::Cast(cast) => vec![&cast.expr],
        Expr::Field(field) => vec![&field.base],
        Expr::Group(group) => vec![&group.expr],
        Expr::Index(index) => vec![&index.expr, &index.index],
        // Without an argument these are an iterator's, which take it by value, and so a mutable reference to one.
        Expr::MethodCall(call) if (call.method == "max" || call.method == "min") && call.args.len() != 1 => {
            return Some(call.method.span());
        }
        Expr::MethodCall(call) if READING_METHODS.iter().any(|name| call.method == name) => {
            std::iter::once(&*call.receiver).chain(&call.args).collect()
        }
        Expr::Paren(paren) => vec![&paren.expr],
        Expr::Range(range) => range.start.iter().chain(&range.end).map(|end| &**end).collect(),
        Expr::Reference(reference) if reference.mutability.is_none() => vec![&reference.expr],
        Expr::Unary(unary) if matches!(unary.op, UnOp::Deref(_) | UnOp::Neg(_) | UnOp::Not(_)) => {
            vec![&unary.expr]
        }
        other => return Some(other.span()),
    };
    parts.into_iter().find_map(fault)
}

/// Returns whether a function with the name of a reading method is one: not callable as a method, or with `&self` and
/// otherwise only shared references and numbers.
pub(super) fn reads_only(signature: &Signature) -> bool {
    let named = READING_METHODS.iter().any(|name| signature.ident == name);
    let reads = |input: &FnArg| match input {
        FnArg::Receiver(receiver) => {
            receiver.reference.is_some() && receiver.mutability.is_none() && receiver.colon_token.is_none()
        }
        FnArg::Typed(typed) => match &*typed.ty {
            Type::Reference(reference) => reference.mutability.is_none(),
            Type::Path(path) => PRIMITIVES.iter().any(|name| path.path.is_ident(name)),
            _ => false,
        },
    };
    let is_method = matches!(signature.inputs.first(), Some(FnArg::Receiver(_)));
    !named || !is_method || signature.inputs.iter().all(reads)
}

/// Returns whether this is `usize::from` or similar.
fn makes_a_number(function: &Expr) -> bool {
    let Expr::Path(path) = function else { return false };
    let names: Vec<String> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    path.qself.is_none()
        && matches!(&names[..], [number, from] if PRIMITIVES.contains(&&**number) && from == "from")
}

fn assigns(operator: &BinOp) -> bool {
    !matches!(
        operator,
        BinOp::Add(_)
            | BinOp::Sub(_)
            | BinOp::Mul(_)
            | BinOp::Div(_)
            | BinOp::Rem(_)
            | BinOp::And(_)
            | BinOp::Or(_)
            | BinOp::BitXor(_)
            | BinOp::BitAnd(_)
            | BinOp::BitOr(_)
            | BinOp::Shl(_)
            | BinOp::Shr(_)
            | BinOp::Eq(_)
            | BinOp::Lt(_)
            | BinOp::Le(_)
            | BinOp::Ne(_)
            | BinOp::Ge(_)
            | BinOp::Gt(_)
    )
}
