//! Makes a source run what it only defines: most sources of holes have a function `run` that does nothing.
//!
//! The new `run` calls each function whose arguments can be made up, one for each value of its first argument, and replies
//! with what it returns. What a function keeps beyond its arguments' lifetime is printed when those are gone.

use std::fmt::Write;

use syn::spanned::Spanned;
use syn::{Expr, Fields, FnArg, GenericParam, Item, ItemFn, Lit, PathArguments, ReturnType, Type};

/// Makes the text run its functions; `None` if it cannot be parsed.
pub fn driven(text: &str) -> Option<String> {
    let file = syn::parse_file(text).ok()?;
    let run = file.items.iter().find_map(|item| match item {
        Item::Fn(function) if function.sig.ident == "run" => Some(function),
        _ => None,
    });
    let Some(run) = run.filter(|run| run.block.stmts.len() == 1) else { return Some(text.into()) };
    let calls: Vec<String> = file
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Fn(function) if function.sig.ident != "run" => call(function, &file.items),
            _ => None,
        })
        .collect();
    if calls.is_empty() {
        return Some(text.into());
    }
    let mut body = format!(
        "async fn run(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {{\n\
         let mut reader = args.reader();\n\
         let which = reader.u64().unwrap_or(0) % {};\n\
         let number = reader.u64().unwrap_or(5);\n",
        calls.len()
    );
    for (index, call) in calls.iter().enumerate() {
        let _ = writeln!(body, "if which == {index} {{ {call} }}");
    }
    body += "reply.u64(number)\n}";
    let at = run.span().byte_range();
    let header = if text.contains("extern crate alloc;") { "" } else { "extern crate alloc;\n" };
    let mut driven = text.to_owned();
    driven.replace_range(at, &body);
    // Behind the attributes of the file.
    let place = driven.find("use sandstorm").unwrap_or(0);
    driven.insert_str(place, header);
    Some(driven)
}

/// A call of a function; `None` if its arguments cannot be made up.
fn call(function: &ItemFn, items: &[Item]) -> Option<String> {
    let mut values = Values { items, names: Vec::new(), made: String::new(), count: 0 };
    for parameter in &function.sig.generics.params {
        match parameter {
            GenericParam::Type(named) if named.bounds.is_empty() => {
                values.names.push(named.ident.to_string())
            }
            GenericParam::Lifetime(_) => {}
            _ => return None,
        }
    }
    let mut arguments = Vec::new();
    for argument in &function.sig.inputs {
        let FnArg::Typed(typed) = argument else { return None };
        arguments.push(values.value(&typed.ty, 0)?);
    }
    let name = &function.sig.ident;
    let waits = if function.sig.asyncness.is_some() { ".await" } else { "" };
    let made = &values.made;
    let called = format!("{name}({}){waits}", arguments.join(", "));
    let (is_printed, outlives) = match &function.sig.output {
        ReturnType::Default => (false, true),
        ReturnType::Type(_, of) => (values.is_printed(of), !borrows(of)),
    };
    let result = if outlives {
        format!("let result = {{ {made} {called} }};")
    } else {
        format!("{made} let result = {called};")
    };
    // What the function no longer owns is overwritten before the result is looked at.
    let overwritten = "let other = alloc::vec![number as u8 | 1; 64]; \
        core::hint::black_box((&other, [number as u8 | 1; 256]));";
    let shown = if is_printed {
        "reply.write(alloc::format!(\"{:?}\", result).as_bytes())?;"
    } else {
        "core::hint::black_box(&result);"
    };
    Some(format!("{result} {overwritten} {shown}"))
}

/// Whether a type contains a reference that is not `'static`.
fn borrows(of: &Type) -> bool {
    match of {
        Type::Reference(borrow) => {
            borrow.lifetime.as_ref().is_none_or(|lifetime| lifetime.ident != "static")
                || borrows(&borrow.elem)
        }
        Type::Path(path) => path.path.segments.iter().any(|segment| match &segment.arguments {
            PathArguments::AngleBracketed(inside) => inside.args.iter().any(|argument| match argument {
                syn::GenericArgument::Type(of) => borrows(of),
                syn::GenericArgument::Lifetime(lifetime) => lifetime.ident != "static",
                _ => false,
            }),
            _ => false,
        }),
        Type::Tuple(tuple) => tuple.elems.iter().any(borrows),
        Type::Array(array) => borrows(&array.elem),
        Type::Slice(slice) => borrows(&slice.elem),
        _ => false,
    }
}

/// Values of the types that a source mentions.
struct Values<'s> {
    items: &'s [Item],
    /// Type parameters, which become `u64`.
    names: Vec<String>,
    /// The statements before the call.
    made: String,
    count: usize,
}

const NUMBERS: [&str; 12] =
    ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize"];

/// What nests deeper is not made up.
const DEPTH_MAX: usize = 6;
/// The items of longer arrays are copies of one.
const ITEMS_MAX: usize = 8;

impl Values<'_> {
    /// An expression of a type.
    fn value(&mut self, of: &Type, depth: usize) -> Option<String> {
        if depth > DEPTH_MAX {
            return None;
        }
        match of {
            Type::Reference(borrow) => {
                if let Type::Path(path) = &*borrow.elem
                    && path.path.is_ident("str")
                {
                    return Some("\"a text\"".into());
                }
                let (inside, whole) = match &*borrow.elem {
                    Type::Slice(slice) => {
                        let one = self.value(&slice.elem, depth + 1)?;
                        let other = self.value(&slice.elem, depth + 1)?;
                        (format!("[{one}, {other}]"), "[..]")
                    }
                    elem => (self.value(elem, depth + 1)?, ""),
                };
                self.count += 1;
                let name = format!("made{}", self.count);
                let _ = write!(self.made, "let mut {name} = {inside}; ");
                Some(format!("&{}{name}{whole}", if borrow.mutability.is_some() { "mut " } else { "" }))
            }
            Type::Tuple(tuple) => {
                let parts: Option<Vec<_>> =
                    tuple.elems.iter().map(|one| self.value(one, depth + 1)).collect();
                let parts = parts?;
                Some(if parts.is_empty() { "()".into() } else { format!("({},)", parts.join(", ")) })
            }
            Type::Array(array) => {
                let Expr::Lit(length) = &array.len else { return None };
                let Lit::Int(length) = &length.lit else { return None };
                let length = length.base10_parse::<usize>().ok()?;
                if length > ITEMS_MAX {
                    return Some(format!("[{}; {length}]", self.value(&array.elem, depth + 1)?));
                }
                let parts: Option<Vec<_>> = (0..length).map(|_| self.value(&array.elem, depth + 1)).collect();
                Some(format!("[{}]", parts?.join(", ")))
            }
            Type::Path(path) => self.named(path.path.segments.last()?, depth),
            _ => None,
        }
    }

    fn named(&mut self, segment: &syn::PathSegment, depth: usize) -> Option<String> {
        let name = segment.ident.to_string();
        let inside = match &segment.arguments {
            PathArguments::AngleBracketed(inside) => inside.args.iter().find_map(|argument| match argument {
                syn::GenericArgument::Type(of) => Some(of),
                _ => None,
            }),
            _ => None,
        };
        match (&*name, inside) {
            ("usize" | "isize", _) => Some(format!("number as u32 as {name}")),
            (name, _) if NUMBERS.contains(&name) => Some(format!("number as {name}")),
            ("bool", _) => Some("(number % 2 == 0)".into()),
            ("char", _) => Some("'x'".into()),
            ("String", _) => Some("alloc::string::String::from(\"a longer text\")".into()),
            ("Option", Some(of)) => {
                let value = self.value(of, depth + 1)?;
                Some(format!("(if number % 4 != 3 {{ Some({value}) }} else {{ None }})"))
            }
            ("Box", Some(of)) => Some(format!("alloc::boxed::Box::new({})", self.value(of, depth + 1)?)),
            ("Rc", Some(of)) => Some(format!("alloc::rc::Rc::new({})", self.value(of, depth + 1)?)),
            ("Cell", Some(of)) => Some(format!("core::cell::Cell::new({})", self.value(of, depth + 1)?)),
            ("Vec", Some(of)) => {
                let [one, other] = [self.value(of, depth + 1)?, self.value(of, depth + 1)?];
                Some(format!("alloc::vec![{one}, {other}]"))
            }
            (name, _) if self.names.iter().any(|other| other == name) => Some("number".into()),
            (name, _) => self.of_item(name, depth),
        }
    }

    /// A value of a type that the source defines.
    fn of_item(&mut self, name: &str, depth: usize) -> Option<String> {
        let items = self.items;
        let (prefix, fields) = items.iter().find_map(|item| match item {
            Item::Struct(defined) if defined.ident == name => Some((name.to_owned(), &defined.fields)),
            Item::Enum(defined) if defined.ident == name => {
                let first = defined.variants.last()?;
                Some((format!("{name}::{}", first.ident), &first.fields))
            }
            _ => None,
        })?;
        let mut values = Vec::new();
        for field in fields {
            let value = self.value(&field.ty, depth + 1)?;
            values.push(field.ident.as_ref().map_or(value.clone(), |name| format!("{name}: {value}")));
        }
        Some(match fields {
            Fields::Unit => prefix,
            Fields::Unnamed(_) => format!("{prefix}({})", values.join(", ")),
            Fields::Named(_) => format!("{prefix} {{ {} }}", values.join(", ")),
        })
    }

    /// Whether values of a type can be printed, and are the same in both forms.
    fn is_printed(&self, of: &Type) -> bool {
        match of {
            Type::Reference(borrow) => self.is_printed(&borrow.elem),
            Type::Slice(slice) => self.is_printed(&slice.elem),
            Type::Array(array) => self.is_printed(&array.elem),
            Type::Tuple(tuple) => tuple.elems.iter().all(|one| self.is_printed(one)),
            Type::Path(path) => path.path.segments.last().is_some_and(|segment| {
                let name = segment.ident.to_string();
                let is_plain =
                    NUMBERS.contains(&&*name) || ["bool", "char", "str", "String"].contains(&&*name);
                is_plain
                    || self.names.contains(&name)
                    || ["Option", "Box", "Vec", "Rc"].contains(&&*name)
                        && matches!(&segment.arguments, PathArguments::AngleBracketed(inside)
                        if inside.args.iter().all(|argument| {
                            matches!(argument, syn::GenericArgument::Type(of) if self.is_printed(of))
                        }))
            }),
            _ => false,
        }
    }
}
