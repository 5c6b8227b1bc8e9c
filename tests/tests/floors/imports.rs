//! Which file imports which, as far as paths say: through groups, aliases, inline modules and re-exports.
//!
//! A path is followed to the file that defines its last name. A name that a file only passes on (`pub use`) counts as
//! its home's. Paths in test modules are left out. Macros are not expanded. Called by the floors test alone.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, Token, tokens};

/// Files, each with the files that it imports from and the names it takes there.
pub type Imports = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// A path as it is written, and where.
struct Written {
    /// Modules around it, from the crate's root on.
    inside: Vec<String>,
    /// Its names, with `crate`, `self` and `super`.
    names: Vec<String>,
    /// What it is called here, if it stands in a `use`.
    alias: Option<String>,
}

/// The files of one crate by their modules, and what each of them calls other things by.
struct Tree<'a> {
    files: BTreeMap<Vec<String>, &'a str>,
    aliases: BTreeMap<Vec<String>, BTreeMap<String, Vec<String>>>,
}

/// What imports what in the files of one crate's `src`.
pub fn of_crate(sources: &[Source]) -> Imports {
    let written: Vec<(&Source, Vec<String>, Vec<Written>)> = sources
        .iter()
        .filter_map(|source| modules_of(&source.path).map(|modules| (source, modules)))
        .map(|(source, modules)| (source, modules.clone(), paths(&tokens(&source.code), &modules)))
        .collect();
    let mut tree = Tree { files: BTreeMap::new(), aliases: BTreeMap::new() };
    for (source, modules, _) in &written {
        tree.files.insert(modules.clone(), &source.path);
    }
    for (_, modules, paths) in &written {
        for path in paths.iter().filter(|path| path.inside == *modules) {
            let (Some(alias), Some(target)) = (&path.alias, tree.absolute(path)) else { continue };
            tree.aliases.entry(modules.clone()).or_default().insert(alias.clone(), target);
        }
    }
    let mut imports = Imports::new();
    for (source, _, paths) in &written {
        for path in paths {
            let Some((home, name)) = tree.absolute(path).and_then(|names| tree.home(names)) else { continue };
            if home != source.path {
                imports.entry(source.path.clone()).or_default().entry(home).or_default().insert(name);
            }
        }
    }
    imports
}

/// The circles: sets of files each of which reaches all the others. A file and the files of its children may use
/// each other.
pub fn circles(imports: &Imports) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let (mut seen, mut waiting) = (BTreeSet::new(), vec![from]);
        while let Some(next) = waiting.pop() {
            for to in imports.get(next).into_iter().flat_map(BTreeMap::keys) {
                if !are_family(next, to) && seen.insert(to) {
                    waiting.push(to);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        imports.keys().map(|from| (from, reach(from))).collect();
    let mut found = BTreeSet::new();
    for (from, seen) in &reached {
        if seen.contains(from) {
            let back = |to: &&&String| reached.get(**to).is_some_and(|others| others.contains(from));
            found.insert(seen.iter().filter(back).map(|to| (*to).clone()).collect::<Vec<_>>());
        }
    }
    found.into_iter().collect()
}

/// Whether one of two files is the module in which the other is, at any depth.
fn are_family(one: &str, other: &str) -> bool {
    let is_above = |above: &str, below: &str| {
        let folder = above.trim_end_matches("lib.rs").trim_end_matches(".rs");
        below.strip_prefix(folder).is_some_and(|rest| folder.ends_with('/') || rest.starts_with('/'))
    };
    is_above(one, other) || is_above(other, one)
}

/// The modules that lead to a file of `src`; none for what is no module of the library.
fn modules_of(path: &str) -> Option<Vec<String>> {
    let (_, inside) = path.split_once("/src/")?;
    let is_test = inside.ends_with("tests.rs") || inside.contains("tests/");
    if inside == "main.rs" || inside.starts_with("bin/") || is_test {
        return None;
    }
    let inside = inside.strip_suffix(".rs")?;
    Some(if inside == "lib" { Vec::new() } else { inside.split('/').map(String::from).collect() })
}

/// All paths that start at the root, here, or above, and all of `use`.
fn paths(tokens: &[Token<'_>], modules: &[String]) -> Vec<Written> {
    let mut found = Vec::new();
    let (mut braces, mut inner): (usize, Vec<(usize, &str)>) = (0, Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        let text = tokens[at].text;
        let in_tests = inner.iter().any(|(_, name)| *name == "tests");
        let starts = |at: usize| tokens.get(at + 1).is_some_and(|next| next.text == "::");
        let follows = at > 0 && matches!(tokens[at - 1].text, "::" | "$");
        match text {
            "{" => {
                if at >= 2 && tokens[at - 2].text == "mod" {
                    inner.push((braces, tokens[at - 1].text));
                }
                braces += 1;
            }
            "}" => {
                braces = braces.saturating_sub(1);
                inner.pop_if(|(depth, _)| *depth == braces);
            }
            "use" | "crate" | "super" | "self" if !in_tests && !follows => {
                let is_use = text == "use";
                if is_use || starts(at) {
                    let inside =
                        modules.iter().cloned().chain(inner.iter().map(|(_, name)| name.to_string()));
                    let mut tree = Vec::new();
                    at = read(tokens, at + usize::from(is_use), &mut Vec::new(), &mut tree);
                    let inside: Vec<String> = inside.collect();
                    found.extend(tree.into_iter().map(|(names, alias)| Written {
                        inside: inside.clone(),
                        names,
                        alias: is_use.then_some(alias),
                    }));
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Reads the path, or the group of paths, that starts at a token; returns where it ends.
fn read(
    tokens: &[Token<'_>],
    mut at: usize,
    before: &mut Vec<String>,
    found: &mut Vec<(Vec<String>, String)>,
) -> usize {
    let depth = before.len();
    while let Some(token) = tokens.get(at) {
        if token.text == "{" {
            at += 1;
            while tokens.get(at).is_some_and(|next| next.text != "}") {
                at = read(tokens, at, before, found);
                at += usize::from(tokens.get(at).is_some_and(|next| next.text == ","));
            }
            before.truncate(depth);
            return at + 1;
        }
        before.push(token.text.to_string());
        at += 1;
        if tokens.get(at).is_none_or(|next| next.text != "::") {
            break;
        }
        at += 1;
        // The generic arguments of an expression.
        if tokens.get(at).is_some_and(|next| next.text == "<") {
            break;
        }
    }
    if before.last().is_some_and(|last| last == "self") && before.len() > 1 {
        before.pop();
    }
    let mut alias = before.last().cloned().unwrap_or_default();
    if let [keyword, name] = &tokens[at.min(tokens.len())..(at + 2).min(tokens.len())]
        && keyword.text == "as"
    {
        alias = name.text.to_string();
        at += 2;
    }
    found.push((before.clone(), alias));
    before.truncate(depth);
    at
}

impl Tree<'_> {
    /// A path from the crate's root; none if it leads out of the crate.
    fn absolute(&self, path: &Written) -> Option<Vec<String>> {
        let mut base = path.inside.clone();
        let mut names = path.names.as_slice();
        match names.first()?.as_str() {
            "crate" => {
                base.clear();
                names = &names[1..];
            }
            "self" => names = &names[1..],
            "super" => {
                while let Some(("super", rest)) =
                    names.split_first().map(|(first, rest)| (first.as_str(), rest))
                {
                    base.pop()?;
                    names = rest;
                }
            }
            child => {
                let below = [base.as_slice(), &[child.to_string()]].concat();
                if !self.files.contains_key(&below) {
                    return None;
                }
            }
        }
        base.extend_from_slice(names);
        Some(base)
    }

    /// The file that defines what a path names, and the name.
    fn home(&self, mut names: Vec<String>) -> Option<(String, String)> {
        // A name may be passed on several times, never for ever.
        for _ in 0..8 {
            let modules = (0..=names.len()).rev().find(|count| self.files.contains_key(&names[..*count]))?;
            let (file, rest) = names.split_at(modules);
            let Some(first) = rest.first() else {
                return Some((self.files[file].to_string(), "itself".into()));
            };
            match self.aliases.get(file).and_then(|aliases| aliases.get(first)) {
                Some(target) if target[..] != names[..modules + 1] => {
                    names = [target.as_slice(), &rest[1..]].concat();
                }
                _ => return Some((self.files[file].to_string(), first.clone())),
            }
        }
        None
    }
}

#[cfg(test)]
fn planted(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let source = |(path, code): &(&str, &str)| Source {
        path: (*path).to_string(),
        text: String::new(),
        code: (*code).to_string(),
    };
    circles(&of_crate(&files.iter().map(source).collect::<Vec<_>>()))
}

#[test]
fn a_circle_is_found_however_it_is_written() {
    let root = ("c/src/lib.rs", "mod a; mod b; pub use b::{Inner as Outer, c};");
    let straight =
        [root, ("c/src/a.rs", "use super::b::B;"), ("c/src/b.rs", "fn f() { crate::a::g::<u8>(); }")];
    assert_eq!(planted(&straight), [["c/src/a.rs", "c/src/b.rs"]]);
    let passed_on = [
        root,
        ("c/src/a.rs", "use crate::{x, Outer as B};"),
        ("c/src/b.rs", "mod m { use super::super::a; }"),
    ];
    assert_eq!(planted(&passed_on), [["c/src/a.rs", "c/src/b.rs"]]);
    let of_three = [
        ("c/src/a.rs", "use crate::b::{self, c::{C, D}};"),
        ("c/src/b/c.rs", "pub(super) use crate::d::E;"),
        ("c/src/b.rs", "mod c;"),
        ("c/src/d.rs", "use super::a::A as Other;"),
    ];
    assert_eq!(planted(&of_three), [["c/src/a.rs", "c/src/b/c.rs", "c/src/d.rs"]]);
}

#[test]
fn a_module_and_its_children_and_tests_may_use_each_other() {
    let family = [("c/src/a.rs", "mod b; use b::B;"), ("c/src/a/b.rs", "use super::A; use crate::a::C;")];
    assert!(planted(&family).is_empty());
    let of_tests = [
        ("c/src/a.rs", "use super::b::B;"),
        ("c/src/b.rs", "mod tests { use crate::a::A; }"),
        ("c/src/b/tests.rs", "use crate::a::A;"),
    ];
    assert!(planted(&of_tests).is_empty());
}
