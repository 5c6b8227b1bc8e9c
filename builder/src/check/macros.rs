//! Rules of macros: those on the list, with their arguments parsed as expressions.

use syn::Expr;
use syn::Macro;
use syn::Pat;
use syn::Token;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;

use super::names;

/// The arguments of a macro.
pub(super) struct Arguments {
    pub(super) expressions: Vec<Expr>,
    pub(super) pattern: Option<Pat>,
    /// The condition after the `if` of `matches!`.
    pub(super) guard: Option<Expr>,
}

/// Returns the arguments of an allowed macro, or the fault and the alternative.
pub(super) fn arguments(invocation: &Macro) -> Result<Arguments, (String, &'static str)> {
    let Some(name) = name(invocation) else {
        let path = invocation.path.segments.iter().map(|segment| segment.ident.to_string());
        let path: String = path.collect::<Vec<_>>().join("::").chars().take(40).collect();
        return Err((format!("the macro `{path}!`"), instead(&path)));
    };
    let parsed = match &*name {
        "vec" => invocation.parse_body_with(vector),
        "matches" => invocation.parse_body_with(matching),
        _ => invocation.parse_body_with(list),
    };
    parsed.map_err(|_| {
        let what = format!("the arguments of `{name}!` are not what it takes");
        (what, "write plain expressions between commas")
    })
}

/// Returns the macro's name if it is on the list.
fn name(invocation: &Macro) -> Option<String> {
    let path = &invocation.path;
    let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    let name = match &names[..] {
        [name] => name,
        [owner, name] if owner == "alloc" && matches!(&**name, "vec" | "format") => name,
        [owner, name] if owner == "core" && !matches!(&**name, "vec" | "format") => name,
        _ => return None,
    };
    let plain =
        path.leading_colon.is_none() && path.segments.iter().all(|segment| segment.arguments.is_none());
    (plain && name != "extension" && names::MACROS.contains(&&**name)).then(|| name.clone())
}

/// Returns the alternative to a macro.
fn instead(path: &str) -> &'static str {
    match path.rsplit("::").next().unwrap_or_default() {
        "include" | "include_str" | "include_bytes" => "write the text or bytes into the source",
        "env" | "option_env" => "pass it as an argument of the invocation",
        "println" | "print" | "eprintln" | "eprint" | "dbg" => "use db.log(level, format_args!(..))",
        "asm" | "global_asm" | "naked_asm" => "write Rust",
        "pin" => "use `Box::pin`, of alloc::boxed",
        "extension" => "write sandstorm::extension! once, at the root of src/lib.rs",
        _ => "call a function; docs/extensions.md lists the macros that work",
    }
}

fn list(input: ParseStream<'_>) -> syn::Result<Arguments> {
    let expressions = Punctuated::<Expr, Token![,]>::parse_terminated(input)?;
    Ok(Arguments { expressions: expressions.into_iter().collect(), pattern: None, guard: None })
}

fn vector(input: ParseStream<'_>) -> syn::Result<Arguments> {
    if input.is_empty() {
        return list(input);
    }
    let first: Expr = input.parse()?;
    if input.parse::<Option<Token![;]>>()?.is_some() {
        let count = input.parse()?;
        return Ok(Arguments { expressions: vec![first, count], pattern: None, guard: None });
    }
    let mut arguments = Arguments { expressions: vec![first], pattern: None, guard: None };
    if input.parse::<Option<Token![,]>>()?.is_some() {
        arguments.expressions.extend(list(input)?.expressions);
    }
    Ok(arguments)
}

fn matching(input: ParseStream<'_>) -> syn::Result<Arguments> {
    let expressions = vec![input.parse()?];
    input.parse::<Token![,]>()?;
    let pattern = Some(Pat::parse_multi_with_leading_vert(input)?);
    let guard = input.parse::<Option<Token![if]>>()?.map(|_| input.parse()).transpose()?;
    input.parse::<Option<Token![,]>>()?;
    Ok(Arguments { expressions, pattern, guard })
}
