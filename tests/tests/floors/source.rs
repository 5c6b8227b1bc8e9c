//! Reads Rust source far enough to know which module imports which, where `unsafe` stands and how long
//! functions are.
//!
//! Comments and literals are blanked out first, then the rest is cut into tokens with their lines. Paths
//! that start with `crate::` or climb out with `super::` are resolved to the top-level module they reach;
//! names that `lib.rs` re-exports count as their home module. Macros are not expanded. Called by the
//! floors test alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// One source file.
pub struct Source {
    /// Path from the root of the project, with `/`.
    pub path: String,
    /// The file as it is.
    pub text: String,
    /// The text with comments and literals blanked out, line by line the same.
    pub code: String,
}

/// One word or sign of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// Line, from 1.
    pub line: usize,
    /// An identifier, a number, `::` or one sign.
    pub text: &'a str,
}

/// All `.rs` files below `folder`, in order of path; build products are left out.
pub fn read_all(root: &Path, folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut waiting = vec![root.join(folder)];
    while let Some(next) = waiting.pop() {
        let Ok(entries) = fs::read_dir(&next) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                if entry.file_name() != "target" {
                    waiting.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source file is UTF-8");
                let path = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
                found.push(Source { path, code: blank(&text), text });
            }
        }
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    found
}

/// The tokens of a blanked text.
pub fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let bytes = match () {
                () if word > 0 => word,
                () if rest.starts_with("::") => 2,
                () => first.len_utf8(),
            };
            if !first.is_whitespace() {
                found.push(Token { line: index + 1, text: &rest[..bytes] });
            }
            rest = &rest[bytes..];
        }
    }
    found
}

/// Replaces comments, strings and character literals by spaces.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match literal_end(text, at) {
            Some(end) => end.min(bytes.len()),
            None => {
                at += 1;
                continue;
            }
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8(out).expect("whole characters were blanked")
}

/// Where the comment or literal that starts at byte `at` ends, if one starts there.
fn literal_end(text: &str, at: usize) -> Option<usize> {
    let (bytes, rest) = (text.as_bytes(), &text.as_bytes()[at..]);
    let in_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if rest.starts_with(b"//") {
        return Some(at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()));
    }
    if rest.starts_with(b"/*") {
        return Some(at + block_comment_bytes(rest));
    }
    let prefix = if rest.starts_with(b"br") { 2 } else { 1 };
    if rest[prefix - 1] == b'r' && !in_word {
        let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
        if rest.get(prefix + hashes) == Some(&b'"') {
            let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
            let body = &rest[prefix + hashes + 1..];
            let bytes = body.windows(close.len()).position(|window| window == close).unwrap_or(body.len());
            return Some(at + prefix + hashes + 1 + bytes + close.len());
        }
    }
    match rest[0] {
        b'"' => Some(at + quoted_bytes(rest, b'"')),
        b'\'' if rest.get(1) == Some(&b'\\') => Some(at + quoted_bytes(rest, b'\'')),
        // A lifetime is no literal: a character literal closes right after its one character.
        b'\'' => {
            let bytes = text[at + 1..].chars().next()?.len_utf8();
            (rest.get(1 + bytes) == Some(&b'\'')).then_some(at + 2 + bytes)
        }
        _ => None,
    }
}

fn block_comment_bytes(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn quoted_bytes(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// The top-level module that a file of a crate belongs to: `src/ops/read.rs` to `ops`. None for the roots.
pub fn module_of(path: &str) -> Option<&str> {
    let (_, inside) = path.split_once("/src/")?;
    if inside == "lib.rs" || inside == "main.rs" || inside.starts_with("bin/") {
        return None;
    }
    Some(inside.split('/').next().unwrap_or_default().trim_end_matches(".rs"))
}

/// Names that `lib.rs` re-exports, each with the top-level module it comes from.
pub fn exports(code: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let tokens = tokens(code);
    for (at, token) in tokens.iter().enumerate() {
        if token.text != "use" || at == 0 || tokens[at - 1].text != "pub" {
            continue;
        }
        let Some(home) = tokens[at + 1..].iter().find(|next| is_word(next.text) && next.text != "crate")
        else {
            continue;
        };
        for name in tokens[at + 1..].iter().take_while(|next| next.text != ";") {
            if is_word(name.text) && name.text != home.text {
                found.insert(name.text.to_string(), home.text.to_string());
            }
        }
    }
    found
}

/// The first names of all paths from the crate's root in one file, with the line of each.
pub fn root_paths(source: &Source) -> BTreeSet<(String, usize)> {
    let tokens = tokens(&source.code);
    let inside = source.path.split_once("/src/").map_or("", |(_, inside)| inside);
    let file_depth = if module_of(&source.path).is_none() { 0 } else { inside.split('/').count() };
    let mut found = BTreeSet::new();
    let (mut braces, mut modules) = (0_usize, Vec::new());
    for at in 0..tokens.len() {
        match tokens[at].text {
            "{" => {
                if at >= 2 && tokens[at - 2].text == "mod" {
                    modules.push(braces);
                }
                braces += 1;
            }
            "}" => {
                braces = braces.saturating_sub(1);
                if modules.last() == Some(&braces) {
                    modules.pop();
                }
            }
            "crate" if at == 0 || tokens[at - 1].text != "$" => collect(&tokens, at + 1, &mut found),
            "super" if at == 0 || tokens[at - 1].text != "::" => {
                let chain = tokens[at..].chunks(2).take_while(|pair| pair[0].text == "super").count();
                if chain == file_depth + modules.len() {
                    collect(&tokens, at + 2 * chain - 1, &mut found);
                }
            }
            _ => {}
        }
    }
    found
}

/// Adds the name, or the names of the group, that follow the `::` at `at`.
fn collect(tokens: &[Token<'_>], at: usize, found: &mut BTreeSet<(String, usize)>) {
    let Some([path, next]) = tokens.get(at..at + 2) else { return };
    if path.text != "::" {
        return;
    }
    if next.text != "{" {
        found.insert((next.text.to_string(), next.line));
        return;
    }
    let mut depth = 0;
    for pair in tokens[at + 1..].windows(2) {
        depth += match pair[0].text {
            "{" => 1,
            "}" => -1,
            _ => 0,
        };
        if depth == 0 {
            break;
        }
        if depth == 1 && matches!(pair[0].text, "{" | ",") && is_word(pair[1].text) {
            found.insert((pair[1].text.to_string(), pair[1].line));
        }
    }
}

/// Name, first line and number of lines of every function with a body.
pub fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    for at in 0..tokens.len().saturating_sub(1) {
        if tokens[at].text != "fn" || !is_word(tokens[at + 1].text) {
            continue;
        }
        let (mut round, mut curly) = (0, 0);
        for token in &tokens[at..] {
            match token.text {
                "(" | "[" => round += 1,
                ")" | "]" => round -= 1,
                ";" if round == 0 && curly == 0 => break,
                "{" => curly += 1,
                "}" => curly -= 1,
                _ => {}
            }
            if token.text == "}" && curly == 0 && round == 0 {
                let lines = token.line - tokens[at].line + 1;
                found.push((tokens[at + 1].text.to_string(), tokens[at].line, lines));
                break;
            }
        }
    }
    found
}

/// Name and line of every struct, enum, union, trait and type alias that is not a test's; types that belong to a trait are
/// left out.
pub fn types(code: &str) -> Vec<(String, usize)> {
    let tokens = tokens(code);
    // Of each brace that is open: whether a test module, and whether an implementation or a trait.
    let mut open: Vec<(bool, bool)> = Vec::new();
    let (mut found, mut of_tests, mut of_trait) = (Vec::new(), false, false);
    for (at, token) in tokens.iter().enumerate() {
        let next = tokens.get(at + 1).map_or("", |next| next.text);
        match token.text {
            "{" => open.push((std::mem::take(&mut of_tests), std::mem::take(&mut of_trait))),
            "}" => drop(open.pop()),
            ";" => (of_tests, of_trait) = (false, false),
            "mod" => of_tests |= next == "tests",
            "impl" => of_trait = true,
            "struct" | "enum" | "union" | "trait" | "type" if is_word(next) => {
                let is_associated = token.text == "type" && open.iter().any(|(_, of_trait)| *of_trait);
                let starts = at == 0 || !matches!(tokens[at - 1].text, "." | "::");
                if starts && !is_associated && !open.iter().any(|(of_tests, _)| *of_tests) {
                    found.push((next.to_string(), token.line));
                }
                of_trait |= token.text == "trait";
            }
            _ => {}
        }
    }
    found
}

fn is_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

#[test]
fn comments_and_literals_are_no_code() {
    let text = "a // crate::b\n/* crate::c /* x */ */ \"crate::d\\\"\" 'x' '\\'' r#\"crate::\"e\"# &'a f";
    let code = blank(text);
    assert_eq!(tokens(&code).iter().map(|token| token.text).collect::<Vec<_>>(), ["a", "&", "'", "a", "f"]);
    assert_eq!(code.len(), text.len());
}

#[test]
fn paths_from_the_root_are_found_in_every_shape() {
    let code = "use crate::{one::{A, B}, two, three::C}; pub(crate) fn f() { crate::four::g(); }\n\
                use super::super::five; mod tests { use super::local; use super::super::super::six; }";
    let source = Source { path: "db/src/ops/read.rs".into(), text: String::new(), code: code.into() };
    let names: Vec<_> = root_paths(&source).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["five", "four", "one", "six", "three", "two"]);
}

#[test]
fn functions_are_measured_from_their_first_to_their_last_line() {
    let code = "fn one() {\n  if a {\n  }\n}\ntrait T { fn two(&self); fn three([u8; 2]) -> u8 { 1 } }";
    assert_eq!(functions(code), [("one".into(), 1, 4), ("three".into(), 5, 1)]);
}

#[test]
fn types_are_found_where_they_are_defined() {
    let code = "pub struct One(u8);\nenum Two<T> {}\nimpl Iterator for One { type Item = u8; fn f() { struct Three; } }\n\
                trait Four { type Item; }\npub(crate) type Five = Vec<One>;\nmod tests { struct Six; }\nmod a { struct Seven {} }";
    let names: Vec<_> = types(code).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["One", "Two", "Three", "Four", "Five", "Seven"]);
}
