//! Reads a file as tokens, before any recursive code processes it.
//!
//! Limits nesting and the length of statements, because parser and compiler recurse on their stacks; refuses words that
//! no extension needs; cuts out unit tests.

use proc_macro2::Delimiter;
use proc_macro2::Group;
use proc_macro2::Ident;
use proc_macro2::Spacing;
use proc_macro2::Span;
use proc_macro2::TokenStream;
use proc_macro2::TokenTree;

use super::Findings;
use crate::limits;

/// Words that are refused everywhere, and the alternatives.
const WORDS: [(&str, &str, &str); 7] = [
    ("unsafe", "unsafe code is not for extensions", "use the safe operations of core, alloc and sandstorm"),
    ("static", "a static keeps state outside the store", "use a `const`, or put a record"),
    ("macro_rules", "extensions define no macros", "write a function"),
    ("asm", "extensions contain no assembly", "write Rust"),
    ("naked_asm", "extensions contain no assembly", "write Rust"),
    ("UnsafeCell", "a cell without rules", "use `Cell` or `RefCell`"),
    ("ptr_eq", "a comparison of addresses", "compare numbers that you give the values"),
];
/// Names of functions that return an address. rustc treats addresses of dead values as unequal though they are equal,
/// and removes bounds checks that follow from that (#107975); `mir.rs` refuses the pointers themselves.
const ADDRESS_WORDS: [&str; 14] = [
    "as_mut_ptr",
    "as_mut_ptr_range",
    "as_non_null",
    "as_ptr",
    "as_ptr_range",
    "element_offset",
    "expose_provenance",
    "into_non_null",
    "into_raw",
    "into_raw_parts",
    "raw_get",
    "RawWaker",
    "RawWakerVTable",
    "vtable",
];

/// Returns the tokens of a file without its unit tests, or `None` when they cannot be read or nest too deep.
pub(super) fn read(path: &str, text: &str, findings: &mut Findings) -> Option<TokenStream> {
    let tokens: TokenStream = match text.parse() {
        Ok(tokens) => tokens,
        Err(error) => {
            let error: proc_macro2::LexError = error;
            findings.refuse(path, error.span(), "this is no Rust", "mend it; `cargo check` says more");
            return None;
        }
    };
    let tokens = without_tests(tokens);
    scan(path, &tokens, findings).then_some(tokens)
}

/// One bracketed sequence of tokens being scanned.
struct Level {
    tokens: proc_macro2::token_stream::IntoIter,
    /// Tokens since the last separator.
    statement: usize,
    previous: Previous,
}

/// The kind of the preceding token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Previous {
    Apostrophe,
    Block,
    Other,
}

impl Level {
    fn new(tokens: TokenStream) -> Level {
        Level { tokens: tokens.into_iter(), statement: 0, previous: Previous::Other }
    }
}

/// Scans every token without recursion; returns whether the tokens are safe to parse.
fn scan(path: &str, tokens: &TokenStream, findings: &mut Findings) -> bool {
    let mut levels = vec![Level::new(tokens.clone())];
    while let Some(level) = levels.last_mut() {
        let Some(token) = level.tokens.next() else {
            levels.pop();
            continue;
        };
        level.statement = if separates(&token, level.previous) { 0 } else { level.statement + 1 };
        if level.statement > limits::STATEMENT_TOKENS_MAX {
            let what = format!("a statement of more than {} tokens", limits::STATEMENT_TOKENS_MAX);
            findings.refuse(path, token.span(), what, "split it");
            return false;
        }
        if let TokenTree::Ident(word) = &token {
            check_word(path, word, level.previous, findings);
        }
        level.previous = previous(&token);
        if let TokenTree::Group(group) = token {
            if levels.len() == limits::NESTING_MAX {
                let what = format!("brackets nest deeper than {}", limits::NESTING_MAX);
                findings.refuse(path, group.span_open(), what, "move inner parts to functions");
                return false;
            }
            levels.push(Level::new(group.stream()));
        }
    }
    true
}

/// Returns whether a statement certainly begins at or after this token.
fn separates(token: &TokenTree, previous: Previous) -> bool {
    match token {
        TokenTree::Punct(mark) if matches!(mark.as_char(), ';' | ',') => true,
        TokenTree::Punct(mark) => mark.as_char() == '#' && previous == Previous::Block,
        TokenTree::Ident(word) => previous == Previous::Block && *word != "else",
        _ => false,
    }
}

fn previous(token: &TokenTree) -> Previous {
    match token {
        TokenTree::Punct(mark) if mark.as_char() == '\'' => Previous::Apostrophe,
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Previous::Block,
        _ => Previous::Other,
    }
}

fn check_word(path: &str, word: &Ident, previous: Previous, findings: &mut Findings) {
    let text = word.to_string();
    if previous == Previous::Apostrophe {
        return check_letters(path, word.span(), &text, findings);
    }
    if let Some((_, what, instead)) = WORDS.iter().find(|entry| entry.0 == text) {
        findings.refuse(path, word.span(), *what, instead);
    } else if ADDRESS_WORDS.contains(&&*text) {
        findings.refuse(path, word.span(), format!("`{text}` gives an address"), "use references and slices");
    } else if text.starts_with("r#") {
        findings.refuse(path, word.span(), "a raw identifier", "choose a name that is no keyword");
    } else if text.starts_with("splinter_") || text.starts_with("SPLINTER_") || text.starts_with("__") {
        findings.refuse(path, word.span(), "names like this belong to the builder", "choose another name");
    }
    check_letters(path, word.span(), &text, findings);
}

/// Refuses letters beyond ASCII, because the compiler may treat two spellings as one name.
fn check_letters(path: &str, span: Span, text: &str, findings: &mut Findings) {
    if !text.is_ascii() {
        findings.refuse(path, span, "a name with letters beyond ASCII", "use a to z, 0 to 9 and _");
    }
}

/// Removes `#[cfg(test)] mod NAME { .. }` and `#[cfg(test)] mod NAME;` at the top of a file. The server compiles no
/// unit tests, so they may contain anything.
fn without_tests(tokens: TokenStream) -> TokenStream {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut kept = Vec::new();
    let mut rest = &tokens[..];
    while let Some((first, others)) = rest.split_first() {
        match test_module(rest) {
            Some(length) => rest = &rest[length..],
            None => {
                kept.push(first.clone());
                rest = others;
            }
        }
    }
    kept.into_iter().collect()
}

/// Returns the number of tokens of a unit test module at the front, if there is one.
fn test_module(tokens: &[TokenTree]) -> Option<usize> {
    let [TokenTree::Punct(mark), TokenTree::Group(attribute), TokenTree::Ident(word), name, body, ..] =
        tokens
    else {
        return None;
    };
    let is_module = mark.as_char() == '#' && *word == "mod" && matches!(name, TokenTree::Ident(_));
    let ends = match body {
        TokenTree::Group(body) => body.delimiter() == Delimiter::Brace,
        TokenTree::Punct(end) => end.as_char() == ';' && end.spacing() == Spacing::Alone,
        _ => false,
    };
    (is_module && ends && is_cfg_test(attribute)).then_some(5)
}

/// Returns whether an attribute's group is exactly `[cfg(test)]`.
fn is_cfg_test(attribute: &Group) -> bool {
    let parts: Vec<TokenTree> = attribute.stream().into_iter().collect();
    let [TokenTree::Ident(word), TokenTree::Group(condition)] = &parts[..] else { return false };
    let inner: Vec<TokenTree> = condition.stream().into_iter().collect();
    let [TokenTree::Ident(what)] = &inner[..] else { return false };
    attribute.delimiter() == Delimiter::Bracket
        && condition.delimiter() == Delimiter::Parenthesis
        && *word == "cfg"
        && *what == "test"
}
