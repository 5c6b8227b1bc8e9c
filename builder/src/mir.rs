//! The check of the compiler's view of a crate: its MIR, printed before any optimization.
//!
//! The check of the source (`check.rs`) refuses written function pointers, raw pointers and trait objects. But the
//! compiler also infers them: from the arms of an `if`, the elements of an array, the result of a library function; and
//! rustc's soundness bugs (#25860, #84366, #107975) apply to inferred types too. In the MIR of the tenant's crates
//! every type and every conversion is explicit. The printed text of a constant may be mistaken for one of these: then a
//! source is refused that could have been built, never the reverse.

use std::collections::HashMap;
use std::collections::HashSet;

use crate::Refusal;
use crate::check::PRIMITIVES;
use crate::checked::Guard;
use crate::limits;

/// Refused conversions of MIR, all except those between numbers and from arrays to slices, by their names in `CastKind`
/// and `PointerCoercion`; and other constructs without a place in the code of an extension.
const REFUSED: [(&str, &str, &str); 15] = [
    ("ReifyFnPointer", FUNCTION_POINTER, GENERIC),
    ("ClosureFnPointer", FUNCTION_POINTER, GENERIC),
    ("UnsafeFnPointer", FUNCTION_POINTER, GENERIC),
    ("FnPtrToPtr", FUNCTION_POINTER, GENERIC),
    ("PointerExposeProvenance", RAW_POINTER, REFERENCE),
    ("PointerWithExposedProvenance", RAW_POINTER, REFERENCE),
    ("MutToConstPointer", RAW_POINTER, REFERENCE),
    ("ArrayToPointer", RAW_POINTER, REFERENCE),
    ("PtrToPtr", RAW_POINTER, REFERENCE),
    ("Transmute", "a conversion between types that are not alike", REFERENCE),
    ("(Subtype)", "a conversion between functions for several lifetimes", GENERIC),
    ("core::fmt::Pointer", ADDRESS, "print the value"),
    ("Argument::<'_>::new_pointer", ADDRESS, "print the value"),
    ("asm!", "assembly", "write Rust"),
    ("core::intrinsics::", "an intrinsic function", "call what core and alloc offer"),
];
const FUNCTION_POINTER: &str = "a function or a closure becomes a function pointer here";
const GENERIC: &str = "use a parameter `impl Fn(..)`, or an enum and a `match`";
const RAW_POINTER: &str = "there is a raw pointer here";
const REFERENCE: &str = "use references and slices";
const ADDRESS: &str = "an address is printed here";
const NO_RETURN: &str = "a function that never returns is called here";
const CHANGE: &str = "a guard or an index changes or moves something here";
const TRAIT_OBJECT: &str = "there is a trait object (`dyn`) here";
const FUNCTION_AS_A_VALUE: &str = "a function whose types bear several lifetimes is a value here";

/// The crates whose functions may be values of any type.
const LIBRARIES: [&str; 3] = ["core::", "alloc::", "sandstorm::"];

/// The trait objects that `derive` and the formatting macros create.
const TRAIT_OBJECTS: [&str; 2] = ["core::fmt::Debug", "core::fmt::Write"];

/// Checks the MIR of a crate.
///
/// # Errors
/// The refusals, at most [`limits::REFUSALS_MAX`], in the order of their places.
pub(crate) fn check(mir: &str, guards: &[Guard]) -> Result<(), Vec<Refusal>> {
    let guarded = Guarded::of(guards);
    let mut refusals = Vec::new();
    let mut locals = Locals::default();
    for line in mir.lines() {
        let (code, comment) = line.rsplit_once(" // ").unwrap_or((line, ""));
        let code = code.trim();
        if line.starts_with("fn ") || line.starts_with("const ") || line.starts_with("static ") {
            locals = Locals::default();
            if names_a_waker(line) {
                locals.wakers.extend(PARAMETERS);
            }
        }
        if is_dump(code) || line.starts_with("// ") {
            continue;
        }
        if let Some((_, variable)) = code.strip_prefix("debug ").and_then(|named| named.split_once(" => ")) {
            locals.variables.insert(variable.trim_end_matches(';'));
        }
        if let Some((local, kind)) = local(code) {
            if names_a_waker(kind) {
                locals.wakers.insert(local);
            } else if kind == "!;" {
                locals.never.insert(local);
            }
        }
        if let Some(local) = raw_local(code) {
            locals.raw.insert(local);
        } else if changes(code, &locals) && guarded.holds(place_of(line)) {
            refusals.push(refusal(comment, CHANGE, "compute it with `let` before"));
        } else if let Some((what, instead)) = fault(line, code, &locals) {
            refusals.push(refusal(comment, what, instead));
        }
    }
    // Declarations and headers have no place, but the code of the declared items does.
    if refusals.iter().any(|refusal: &Refusal| refusal.line > 0) {
        refusals.retain(|refusal| refusal.line > 0);
    }
    refusals.sort();
    refusals.dedup();
    refusals.truncate(limits::REFUSALS_MAX);
    if refusals.is_empty() { Ok(()) } else { Err(refusals) }
}

/// The locals of the current function, by kind of type.
#[derive(Default)]
struct Locals<'m> {
    /// Raw pointers.
    raw: HashSet<&'m str>,
    /// Types of `core::task`.
    wakers: HashSet<&'m str>,
    /// `!`.
    never: HashSet<&'m str>,
    /// Variables of the source.
    variables: HashSet<&'m str>,
}

/// Possible names of parameters.
const PARAMETERS: [&str; 6] = ["_1", "_2", "_3", "_4", "_5", "_6"];

/// Returns the name and the type of `let mut _7: T;`.
fn local(code: &str) -> Option<(&str, &str)> {
    let (local, kind) = code.strip_prefix("let ")?.split_once(": ")?;
    Some((local.strip_prefix("mut ").unwrap_or(local), kind))
}

/// Returns the fault of a line, and the alternative.
fn fault(line: &str, code: &str, locals: &Locals<'_>) -> Option<(&'static str, &'static str)> {
    if dereferences_a_box(code) || asks_for_a_length(code) {
        return None;
    }
    if let Some((_, what, instead)) = REFUSED.iter().find(|(name, ..)| line.contains(name)) {
        return Some((what, instead));
    }
    let assigned = code.split_once(" = ").map(|(local, _)| local);
    if line.contains("*const ")
        || line.contains("*mut ")
        || assigned.is_some_and(|local| locals.raw.contains(local))
    {
        return Some((RAW_POINTER, REFERENCE));
    }
    if never_returns(line, code) {
        return Some((NO_RETURN, "end with `panic!(..)`, or return an error"));
    }
    if line.starts_with(' ') && prints_a_waker(code, &locals.wakers) {
        return Some((ADDRESS, "print the value"));
    }
    let value = code.split_once(" = ").map_or("", |(_, value)| value);
    let reads_never = assigned.is_some_and(|local| locals.never.contains(local))
        && (value.starts_with("copy ") || value.starts_with("move "));
    if reads_never || holds_never(line, code) {
        return Some(("a value of the type `!` is read here", "leave `!` to functions that panic"));
    }
    if holds_a_function(line, code) {
        return Some((FUNCTION_AS_A_VALUE, "call it by its name, or in a closure: `|x| f(x)`"));
    }
    has_trait_object(line).then_some((TRAIT_OBJECT, "use a generic parameter or an enum"))
}

/// Returns the local of `let mut _7: *const T;`. Its assignment decides.
fn raw_local(code: &str) -> Option<&str> {
    let (local, kind) = local(code)?;
    let pointee = kind.strip_prefix("*const ").or_else(|| kind.strip_prefix("*mut "))?;
    let is_plain = !pointee.contains('*') && !has_trait_object(pointee) && !pointee.contains("fn(");
    is_plain.then_some(local)
}

/// Returns whether a line dereferences a box, whose fields no other code can name:
/// `_7 = copy ((_3.0: core::ptr::Unique<T>).0: core::ptr::NonNull<T>) as *const T (Transmute);`.
fn dereferences_a_box(code: &str) -> bool {
    let Some((_, value)) = code.split_once(" = ") else { return false };
    let value = value.strip_prefix("copy ((").or_else(|| value.strip_prefix("move (("));
    value.is_some_and(|value| {
        value.contains(".0: core::ptr::Unique<")
            && value.contains(").0: core::ptr::NonNull<")
            && value.contains(") as *const ")
            && value.ends_with(" (Transmute);")
    })
}

/// Returns whether a line borrows mutably, or moves a value from a place that the source can see: a variable, or behind
/// a reference.
fn changes(code: &str, locals: &Locals<'_>) -> bool {
    let Some((_, value)) = code.split_once(" = ") else { return false };
    let moves = value.strip_prefix("move ").is_some_and(|place| {
        let root = place.trim_start_matches(['(', '*']);
        let root = root.split(|letter: char| letter != '_' && !letter.is_ascii_digit()).next();
        place.contains('*') || place.contains(" as variant#") || locals.variables.contains(root.unwrap_or(""))
    });
    moves || value.starts_with("&mut ")
}

/// The guards and indexes of a crate, by file: the begin of each, and the furthest end of those that begin there or
/// before. There may be as many as lines, and every line is looked up.
struct Guarded<'g>(HashMap<&'g str, Vec<(Position, Position)>>);

/// A line and a column.
type Position = (usize, usize);

impl<'g> Guarded<'g> {
    fn of(guards: &'g [Guard]) -> Guarded<'g> {
        let mut files: HashMap<&str, Vec<(Position, Position)>> = HashMap::new();
        for guard in guards {
            files.entry(&guard.file).or_default().push((guard.from, guard.to));
        }
        for places in files.values_mut() {
            places.sort_unstable();
            let mut furthest = (0, 0);
            for (_, to) in places {
                furthest = furthest.max(*to);
                *to = furthest;
            }
        }
        Guarded(files)
    }

    /// Returns whether one of them contains a place: `src/lib.rs:3:5: 3:10`.
    fn holds(&self, place: &str) -> bool {
        let mut parts = place.split(':');
        let Some(places) = parts.next().and_then(|file| self.0.get(file)) else { return false };
        let mut numbers = parts.map(|part| part.trim().parse().unwrap_or(0));
        let begins = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let before = places.partition_point(|(from, _)| *from <= begins);
        before.checked_sub(1).is_some_and(|last| places[last].1 > begins)
    }
}

/// Returns whether a line is a call that never returns, unless a macro of core or alloc makes it, as for a panic. rustc
/// checks the changes by guards and indexes that return, and does not check those that do not (#161578, #161852). They
/// contain no macros.
fn never_returns(line: &str, code: &str) -> bool {
    let is_call = code.ends_with(" -> unwind unreachable;") || code.ends_with(" -> unwind continue;");
    is_call && !place_of(line).starts_with("/rustc/")
}

/// Returns the place in a line's comment.
fn place_of(line: &str) -> &str {
    line.rsplit_once(" at ").map(|(_, place)| place).unwrap_or_default()
}

/// Returns whether a text names a type that `core::task` passes to futures, because printing one shows addresses. rustc
/// omits the path of an unambiguous name.
fn names_a_waker(text: &str) -> bool {
    ["Context<'", "Waker>", "Waker,", "Waker;", "Waker)", "Waker "].iter().any(|name| {
        text.match_indices(name).any(|(at, _)| {
            let before = text[..at].strip_suffix("core::task::").unwrap_or(&text[..at]);
            before.is_empty() || before.ends_with(['<', '&', ' ', '('])
        })
    })
}

/// Returns whether a line passes a value of `core::task` to a function that prints it.
fn prints_a_waker(code: &str, wakers: &HashSet<&str>) -> bool {
    let of_a_generic = code.split_once("::<").is_some_and(|(_, of)| names_a_waker(of));
    let printed = code.split_once(" as &dyn core::fmt::Debug").and_then(|(value, _)| value.split_once(" = "));
    let is_printed = printed.is_some_and(|(_, value)| {
        let local = value.strip_prefix("copy ").or_else(|| value.strip_prefix("move ")).unwrap_or(value);
        wakers.contains(local) || names_a_waker(value)
    });
    of_a_generic || is_printed || (code.contains("Debug>::fmt") && names_a_waker(code))
}

/// Returns whether a type contains `!`. No value of such a type exists, and reading one ends a block without a call,
/// also in a guard or an index (#161578, #161852). `!` alone is the type of a panic.
fn holds_never(line: &str, code: &str) -> bool {
    let types = if line.starts_with("fn ") {
        code.strip_suffix(" {").unwrap_or(code).trim_end_matches("-> !")
    } else if code.starts_with("let ") {
        code.split_once(": ").map_or("", |(_, kind)| kind)
    } else {
        ""
    };
    types.contains('!') && types != "!;"
}

/// Returns whether a type contains a function (`for<'a> fn(&'a T<&[u8]>, &[u8]) -> &'a [u8] {f::<T<&[u8]>, &[u8]>}`)
/// that was made for several lifetimes. rustc lets each of them vary independently where such a value is assigned, and
/// does not check that the function's bounds on them (`T: Of<U>`) still hold where the value is called or dropped. Then
/// two lifetimes that were one are two, and #25860 needs no pointer. A single lifetime cannot split, and the bounds of
/// core relate none.
fn holds_a_function(line: &str, code: &str) -> bool {
    let types = if line.starts_with("fn ") {
        code.strip_suffix(" {").unwrap_or(code)
    } else if code.starts_with("let ") {
        code
    } else {
        ""
    };
    types.match_indices('{').any(|(at, _)| {
        let named = braced(&types[at + 1..]);
        let is_unnamed = ["closure@", "closure#", "async "].iter().any(|kind| named.starts_with(kind));
        !is_unnamed && named.contains(['&', '\'']) && !is_of_one_lifetime(named) && !is_of_a_library(named)
    })
}

/// Returns whether a path is made for one lifetime, or one reference to text or numbers, and nothing else:
/// `Row::<'_>::parse`.
fn is_of_one_lifetime(path: &str) -> bool {
    let mut parts = path.split("::<");
    let (Some(before), Some(made_for), None) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let Some((made_for, behind)) = made_for.split_once('>') else { return false };
    let is_plain = |kind: &str| PRIMITIVES.contains(&kind.trim_start_matches('[').trim_end_matches(']'));
    let is_lifetime = made_for.strip_prefix('\'').is_some_and(|name| name.chars().all(is_of_a_word));
    let is_one = is_lifetime || made_for.strip_prefix('&').is_some_and(is_plain);
    is_one && before.chars().chain(behind.chars()).all(|letter| is_of_a_word(letter) || letter == ':')
}

/// Returns whether a letter can be part of a name.
fn is_of_a_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Returns the text before the closing brace.
fn braced(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|letter| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        depth == 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// Returns whether a path belongs to core, alloc or the SDK, or to one of their traits: `<T as
/// core::convert::From<&str>>::from`.
fn is_of_a_library(path: &str) -> bool {
    let Some(of) = path.strip_prefix('<') else {
        return LIBRARIES.iter().any(|library| path.starts_with(library));
    };
    let mut depth = 0;
    let mut before = ' ';
    of.char_indices().any(|(at, letter)| {
        depth += i32::from(letter == '<') - i32::from(letter == '>' && before != '-');
        before = letter;
        let named = of[at..].strip_prefix(" as ").filter(|_| depth == 0);
        named.is_some_and(|named| LIBRARIES.iter().any(|library| named.starts_with(library)))
    })
}

/// Returns whether a line is `_6 = &raw const (fake) (*_1);`, by which MIR reads the length of a slice before indexing.
/// Only the pointer's metadata is read, and only MIR can express this.
fn asks_for_a_length(code: &str) -> bool {
    code.split_once(" = ").is_some_and(|(_, value)| value.starts_with("&raw const (fake) ("))
}

/// Returns whether a line names a trait object other than those of formatting.
fn has_trait_object(code: &str) -> bool {
    code.match_indices("dyn ").any(|(at, found)| {
        let is_word = !code[..at].ends_with(|before: char| before.is_ascii_alphanumeric() || before == '_');
        let named = &code[at + found.len()..];
        let is_allowed = TRAIT_OBJECTS.iter().any(|allowed| {
            named.strip_prefix(allowed).is_some_and(|rest| rest.starts_with(['>', ')', ';', ',', ' ']))
        });
        is_word && !is_allowed
    })
}

/// Returns whether a line shows bytes of a constant: `0x10 │ 61 62 __ ╾──`.
fn is_dump(code: &str) -> bool {
    let bytes = code.as_bytes();
    let hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let pair =
        matches!(bytes, [first, second, b' ', ..] if hex(first) && hex(second)) || code.starts_with("__ ");
    pair || code.starts_with("0x") || code.starts_with('╾')
}

/// Returns the refusal of a line at the place in its comment: `scope 0 at src/lib.rs:3:5: 3:10`.
fn refusal(comment: &str, what: &str, instead: &str) -> Refusal {
    let mut parts = place_of(comment).split(':');
    let (file, line, column) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    let number = |part: Option<&str>| part.and_then(|part| part.trim().parse().ok()).unwrap_or(0);
    Refusal::at(file, number(line), number(column), what, instead)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::checked::Guard;

    fn verdict(lines: &str) -> Vec<(usize, String)> {
        let text = format!("fn f(_1: u8) -> u8 {{\n{lines}\n}}\n");
        let refusals = check(&text, &[]).err().unwrap_or_default();
        refusals.into_iter().map(|refusal| (refusal.line, refusal.what)).collect()
    }

    const AT: &str = "// scope 0 at src/lib.rs:7:5: 7:9";

    #[test]
    fn conversions_of_numbers_and_boxes_pass() {
        let lines = format!(
            "    let mut _7: *const u8; {AT}\n    _2 = copy _1 as u64 (IntToInt); {AT}\n    \
             _7 = copy ((_3.0: core::ptr::Unique<u8>).0: core::ptr::NonNull<u8>) as *const u8 (Transmute); {AT}\n    \
             _4 = copy (*_7); {AT}\n    _7 = &raw const (fake) (*_1); {AT}\n    _8 = PtrMetadata(move _7); {AT}\n    _5 = copy _4 as &[u8] (PointerCoercion(Unsize, Implicit)); {AT}\n    \
             _6 = &_5 as &dyn core::fmt::Debug (PointerCoercion(Unsize, Implicit)); {AT}\n    \
             0x00 │ 2a 6d 75 74 20 │ *mut "
        );
        assert_eq!(verdict(&lines), []);
    }

    #[test]
    fn a_raw_pointer_is_refused_wherever_it_comes_from() {
        for line in [
            "_7 = core::slice::<impl [u8]>::as_ptr(copy _1) -> [return: bb1, unwind unreachable];",
            "_7 = copy _3 as *const u8 (PtrToPtr);",
            "_7 = copy _3 as *const u8 (Transmute);",
            "_7 = &raw const (*_3);",
            "_8 = g::<*const u8>(copy _3) -> [return: bb1, unwind unreachable];",
        ] {
            let lines = format!("    let mut _7: *const u8; {AT}\n    {line} {AT}");
            assert_eq!(verdict(&lines).len(), 1, "{line}");
        }
        assert_eq!(verdict(&format!("    let mut _7: (u8, *const u8); {AT}")).len(), 1);
    }

    #[test]
    fn functions_are_values_when_they_are_of_core_or_of_one_lifetime() {
        for (kind, passes) in [
            (
                "fn(&str) -> alloc::string::String {<alloc::string::String as core::convert::From<&str>>::from}",
                true,
            ),
            ("for<'a> fn(&'a str) -> usize {core::str::<impl str>::len}", true),
            ("for<'a> fn(&'a [u8]) -> usize {conv}", true),
            ("fn(&[u8]) -> Row<'_> {Row::<'_>::parse}", true),
            ("fn(&str) -> Of<&str> {Of::<&str>}", true),
            ("{closure@src/lib.rs:1:2: 1:3}", true),
            ("for<'a> fn(&'a Of<&[u8]>, &[u8]) -> &'a [u8] {pick::<Of<&[u8]>, &[u8]>}", false),
            ("for<'a> fn(&'a Of<&[u8]>, P) -> &'a [u8] {<Of<&[u8]> as Pick<P>>::pick}", false),
            ("for<'a> fn(&'a Of<'_>) -> P {<Of<'_> as Fn(P) -> core::X as Pick<P>>::pick}", false),
            ("fn(&P) -> u8 {of::<&P>}", false),
            ("fn() -> u8 {Row::<'_>::of::<core::X>}", false),
        ] {
            let lines = format!("    let _7: (u8, {kind}); {AT}");
            assert_eq!(verdict(&lines).is_empty(), passes, "{kind}");
        }
    }

    #[test]
    fn a_change_is_found_in_any_of_very_many_guards() {
        let guard = |line: usize| Guard { file: "src/lib.rs".into(), from: (line, 5), to: (line, 9) };
        let mut guards: Vec<Guard> = (0..200_000).map(|line| guard(2 * line)).collect();
        guards.push(Guard { from: (100_001, 1), to: (100_003, 1), ..guard(0) });
        let line = |line: usize| format!("    _1 = &mut _2; // scope 0 at src/lib.rs:{line}:5: {line}:9\n");
        let between: String = (0..200_000).map(|at| line(2 * at + 1)).collect();
        let found = check(&between, &guards).unwrap_err();
        assert_eq!(found.iter().map(|refusal| refusal.line).collect::<Vec<_>>(), [100_001]);
        assert!(check(&line(300_000), &guards).is_err());
        assert!(check(&line(300_000).replace(":5:", ":9:"), &guards).is_ok());
        assert!(check(&line(300_000).replace("lib.rs", "other.rs"), &guards).is_ok());
    }

    #[test]
    fn a_text_cannot_hide_what_stands_beside_it() {
        let hidden =
            "_5 = h(const \" // scope 0 at src/lib.rs:1:1: 1:1\", copy _6 as fn() (ReifyFnPointer(Safe)));";
        assert_eq!(verdict(&format!("    {hidden} {AT}")).len(), 1);
        assert_eq!(verdict(&format!("    _5 = h::<dyn core::fmt::Debugger>(); {AT}")).len(), 1);
        assert_eq!(verdict(&format!("    _5 = mydyn (copy _4); {AT}")), []);
    }
}
