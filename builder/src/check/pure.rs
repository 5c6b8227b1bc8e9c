//! Match guards and index expressions: expressions that cannot change what is matched or indexed.
//!
//! rustc guards the place that a `match` or an index looks at by borrows that it drops too early where a guard or an
//! index assigns, diverges, suspends, or moves a part out (#160525, #160599, #161578, #161852). A list of bad forms would miss some, so this is
//! the list of good ones: nothing on it assigns, borrows mutably, diverges, or calls a function that could. Calls of
//! [`READING_METHODS`] are on it because an extension's own methods of these names must take `&self`
//! ([`reads_only`]), and operators because nothing implements a trait for `&mut T`
//! (`Rules::check_impl`), so that no operator reborrows its operand mutably.

use proc_macro2::Span;
use syn::BinOp;
use syn::Expr;
use syn::FnArg;
use syn::Signature;
use syn::UnOp;
use syn::spanned::Spanned;

/// Methods that guards and indexes may call: those of `core` and `alloc` take `&self` and return.
const READING_METHODS: [&str; 10] = [
    "contains",
    "contains_key",
    "ends_with",
    "is_empty",
    "is_err",
    "is_none",
    "is_ok",
    "is_some",
    "len",
    "starts_with",
];

/// The first part of a guard or an index that could change something, or none.
pub(super) fn fault(expression: &Expr) -> Option<Span> {
    let parts: Vec<&Expr> = match expression {
        Expr::Lit(_) | Expr::Path(_) => Vec::new(),
        Expr::Binary(binary) if !assigns(&binary.op) => vec![&binary.left, &binary.right],
        Expr::Cast(cast) => vec![&cast.expr],
        Expr::Field(field) => vec![&field.base],
        Expr::Group(group) => vec![&group.expr],
        Expr::Index(index) => vec![&index.expr, &index.index],
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

/// Whether a function that bears the name of a reading method is one: not callable as a method, or by `&self`.
pub(super) fn reads_only(signature: &Signature) -> bool {
    let named = READING_METHODS.iter().any(|name| signature.ident == name);
    match signature.inputs.first() {
        Some(FnArg::Receiver(receiver)) if named => {
            receiver.reference.is_some() && receiver.mutability.is_none() && receiver.colon_token.is_none()
        }
        _ => true,
    }
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
