//! Changes of sources: each replaces a place of the text by what may stand there, mostly of the same source.
//!
//! A program that the check refuses is changed again where it was refused, so that many of the programs are ones that just
//! pass the check, with most of a hole still in them.

use fastrand::Rng;

use crate::corpus::{Corpus, Program};
use crate::places::{Place, Places};

/// Changes of a program at once.
const CHANGES_MAX: usize = 2;
/// Attempts to change a program so that the check lets it pass.
const ATTEMPTS_MAX: usize = 30;

/// A program as the check leaves it.
pub enum Made {
    /// The check lets it pass.
    Accepted(Program),
    /// The check refuses it, and still does after many changes.
    Refused,
}

/// Makes a program.
pub fn make(corpus: &Corpus, random: &mut Rng) -> Made {
    let mut program = match random.u8(..10) {
        0..=4 => pick(&corpus.accepted, random).clone(),
        5..=8 => pick(&corpus.refused, random).clone(),
        _ => spliced(pick(&corpus.accepted, random), pick(&corpus.refused, random)),
    };
    let mut focus = refused_at(&program).ok().flatten();
    for _ in 0..ATTEMPTS_MAX {
        let mut candidate = program.clone();
        for _ in 0..random.usize(1..=CHANGES_MAX) {
            candidate = changed(&candidate, corpus, focus.as_ref(), random);
        }
        match refused_at(&candidate) {
            Err(()) => return Made::Accepted(candidate.with_text(of_32_bits(candidate.text()))),
            // Mostly from the beginning again: few changes leave most of a hole, and a program that compiles.
            Ok(at) if random.u8(..4) == 0 => (program, focus) = (candidate, at),
            Ok(_) => {}
        }
    }
    Made::Refused
}

fn pick<'c, T>(from: &'c [T], random: &mut Rng) -> &'c T {
    &from[random.usize(..from.len())]
}

/// The line at which the check refuses a program, if it is of the mutated file; an error if it does not.
fn refused_at(program: &Program) -> Result<Option<Place>, ()> {
    let Some(package) = program.package() else { return Ok(None) };
    let Err(refusals) = builder::check(&package) else { return Err(()) };
    let first = &refusals[0];
    if first.line == 0 || first.file != program.path() {
        return Ok(None);
    }
    let text = program.text();
    let start: usize = text.split_inclusive('\n').take(first.line - 1).map(str::len).sum();
    let line = text[start..].split('\n').next().unwrap_or("");
    // A column counts characters; a line of a refused program may have other ones than ASCII.
    let column = line.chars().take(first.column.saturating_sub(1)).map(char::len_utf8).sum::<usize>();
    Ok(Some(start + column..start + line.len()))
}

/// Casts to and from `usize` by way of 32 bits in both forms: the width of a pointer is the one difference between them that
/// safe code may see. What a `usize` wraps at is cut off so before a table or a reply keeps it; other numbers lose their
/// upper bits in both forms alike.
fn of_32_bits(text: &str) -> String {
    let mut text = text.to_owned();
    for (wide, narrow) in
        [("usize", "u32"), ("u64", "u32"), ("u128", "u32"), ("isize", "i32"), ("i64", "i32"), ("i128", "i32")]
    {
        text = text.replace(&format!(" as {wide}"), &format!(" as {narrow} as {wide}"));
    }
    text.replace(" as u32 as u32 as ", " as u32 as ")
        .replace("usize::MAX", "(u32::MAX as usize)")
        .replace("isize::MAX", "(i32::MAX as isize)")
        .replace("isize::MIN", "(i32::MIN as isize)")
        .replace("usize::BITS", "u32::BITS")
}

/// A program with the items of a hole in a module of their own.
fn spliced(program: &Program, hole: &Program) -> Program {
    let Some(places) = Places::of(hole.text()) else { return program.clone() };
    let items: Vec<&str> = places.items.iter().map(|place| &hole.text()[place.clone()]).collect();
    let text = format!(
        "{}\npub mod spliced {{\nuse alloc::{{boxed::Box, vec::Vec}};\nuse sandstorm::{{Args, Db, Error, Reply}};\n{}\n}}\n",
        program.text(),
        items.join("\n").replace("super::", "")
    );
    let crates = if text.contains("extern crate alloc;") { "" } else { "extern crate alloc;\n" };
    let place = text.find("\nuse ").map_or(0, |at| at + 1);
    program.with_text(format!("{}{crates}{}", &text[..place], &text[place..]))
}

/// A program with one change, near a place if there is one. The same program if nothing can be changed so.
fn changed(program: &Program, corpus: &Corpus, focus: Option<&Place>, random: &mut Rng) -> Program {
    let text = program.text();
    let Some(places) = Places::of(text) else { return program.clone() };
    let focus = focus.filter(|_| random.u8(..4) > 0);
    let mut change = Change { text, places: &places, focus, random };
    // What cannot be changed in one way can be in another.
    for _ in 0..10 {
        if let Some((place, new)) = change.any(corpus) {
            let mut text = text.to_owned();
            text.replace_range(place, &new);
            return program.with_text(text);
        }
    }
    program.clone()
}

/// A change of a text in the making.
struct Change<'t> {
    text: &'t str,
    places: &'t Places,
    focus: Option<&'t Place>,
    random: &'t mut Rng,
}

const EDGES: [&str; 20] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "8",
    "15",
    "16",
    "31",
    "32",
    "63",
    "64",
    "127",
    "128",
    "255",
    "256",
    "1000",
    "65_536",
    "0x7fff_ffff",
    "0xffff_ffff",
];
/// Operators that may stand for each other. A shift stands for a shift alone: one by a length takes the length modulo the
/// width of a pointer, which no cast behind it makes equal in both forms.
const OPERATORS: [&[&str]; 5] = [
    &["+", "-", "*", "/", "%", "&", "|", "^"],
    &["<<", ">>"],
    &["<", "<=", ">", ">=", "==", "!="],
    &["&&", "||"],
    &["+=", "-=", "*=", "|=", "&=", "^="],
];
const TYPES: [&str; 10] = ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "usize", "u128"];
/// Expressions around an expression, which is `@`.
const AROUND: [&str; 22] = [
    "{ @ }",
    "{ let held = @; held }",
    "(|| @)()",
    "(move || @)()",
    "loop { break @ }",
    "'found: { break 'found @ }",
    "match () { () => @ }",
    "match true { true => @, false => panic!() }",
    "if let Some(found) = Some(@) { found } else { panic!() }",
    "{ let Some(found) = Some(@) else { panic!() }; found }",
    "core::hint::black_box(@)",
    "core::convert::identity(@)",
    "Some(@).unwrap()",
    "[@][0]",
    "(@,).0",
    "async { @ }.await",
    "&@",
    "&mut @",
    "*&@",
    "(@).clone()",
    "core::mem::take(&mut @)",
    "core::mem::replace(&mut @, Default::default())",
];
const METHODS: [&str; 24] = [
    "len",
    "is_empty",
    "contains",
    "max",
    "min",
    "next",
    "take",
    "insert",
    "replace",
    "get",
    "get_mut",
    "as_ref",
    "as_mut",
    "iter",
    "iter_mut",
    "unwrap",
    "clone",
    "map",
    "push",
    "pop",
    "wrapping_add",
    "wrapping_sub",
    "is_some",
    "first",
];

impl Change<'_> {
    fn any(&mut self, corpus: &Corpus) -> Option<(Place, String)> {
        match self.random.u8(..32) {
            0..=5 => self.number(),
            6..=9 => self.operator(),
            10..=15 => self.statements(),
            16..=17 => self.expression(corpus),
            18..=23 => self.wrapped(),
            24 => self.lifetime(),
            25 => self.width(),
            26 => self.of_kind(|places| &places.types),
            27..=28 => self.of_kind(|places| &places.names),
            29 => self.method(),
            30 => self.borrow(),
            _ => self.alias(),
        }
    }

    fn said(&self, place: &Place) -> &str {
        self.text.get(place.clone()).unwrap_or("")
    }

    /// One of the places: near the focus if some are, else any. The refused place lies on or in what has to change.
    fn place(&mut self, of: impl Fn(&Places) -> &Vec<Place>) -> Option<Place> {
        let all = of(self.places);
        let near: Vec<&Place> = match self.focus {
            Some(focus) => {
                let touches = |place: &&Place| {
                    place.start < focus.end && place.end > focus.start && place.len() < focus.len() + 60
                };
                all.iter().filter(touches).collect()
            }
            None => Vec::new(),
        };
        let place = if near.is_empty() { self.random.choice(all) } else { self.random.choice(near) };
        place.filter(|place| !place.is_empty() && self.text.get((*place).clone()).is_some()).cloned()
    }

    fn number(&mut self) -> Option<(Place, String)> {
        let place = self.place(|places| &places.numbers)?;
        let said = self.said(&place).to_owned();
        let suffix = said.find(['u', 'i']).filter(|_| !said.starts_with("0x")).map_or("", |at| &said[at..]);
        Some((place, format!("{}{suffix}", self.random.choice(EDGES)?)))
    }

    fn operator(&mut self) -> Option<(Place, String)> {
        let place = self.place(|places| &places.operators)?;
        let class = OPERATORS.iter().find(|class| class.contains(&self.said(&place)))?;
        Some((place, (*self.random.choice(*class)?).into()))
    }

    /// Deletes, repeats or exchanges statements, or moves a copy of one elsewhere.
    fn statements(&mut self) -> Option<(Place, String)> {
        let near = self.focus.map(|focus| focus.start);
        let inside = |block: &&Vec<Place>| match (near, block.first(), block.last()) {
            (Some(at), Some(first), Some(last)) => first.start <= at && at < last.end,
            (_, first, _) => first.is_some(),
        };
        let block = self.random.choice(self.places.blocks.iter().filter(inside).collect::<Vec<_>>())?;
        let index = self.random.usize(..block.len());
        let place = block[index].clone();
        let said = self.said(&place).to_owned();
        match self.random.u8(..4) {
            0 => Some((place, String::new())),
            1 => Some((place, format!("{said}\n{said}"))),
            2 => {
                let next = block.get(index + 1)?.clone();
                let both = format!("{}\n{said}", self.said(&next));
                Some((place.start..next.end, both))
            }
            _ => {
                let other =
                    self.random.choice(self.places.blocks.iter().flatten().collect::<Vec<_>>())?.clone();
                Some((place, format!("{}\n{said}", self.said(&other))))
            }
        }
    }

    fn expression(&mut self, corpus: &Corpus) -> Option<(Place, String)> {
        if self.random.u8(..8) > 0 {
            return self.of_kind(|places| &places.expressions);
        }
        let place = self.place(|places| &places.expressions)?;
        let other = pick(&corpus.refused, self.random);
        let found = self.random.choice(Places::of(other.text())?.expressions)?;
        Some((place, other.text()[found].to_owned()))
    }

    /// Another of the same kind, of the same text.
    fn of_kind(&mut self, of: impl Fn(&Places) -> &Vec<Place>) -> Option<(Place, String)> {
        let place = self.place(&of)?;
        let other = self.random.choice(of(self.places))?.clone();
        (other != place).then(|| (place, self.said(&other).to_owned()))
    }

    fn wrapped(&mut self) -> Option<(Place, String)> {
        let place = self.place(|places| &places.expressions)?;
        let around = self.random.choice(AROUND)?;
        let new = around.replace('@', self.said(&place));
        Some((place, new))
    }

    fn lifetime(&mut self) -> Option<(Place, String)> {
        if self.random.bool() {
            return self.of_kind(|places| &places.lifetimes);
        }
        let place = self.place(|places| &places.lifetimes)?;
        Some((place, (*self.random.choice(["'static", "'_"])?).to_owned()))
    }

    fn width(&mut self) -> Option<(Place, String)> {
        let place = self.place(|places| &places.types)?;
        TYPES.contains(&self.said(&place)).then_some(())?;
        Some((place, (*self.random.choice(TYPES)?).into()))
    }

    fn method(&mut self) -> Option<(Place, String)> {
        if self.random.bool() {
            return self.of_kind(|places| &places.methods);
        }
        let place = self.place(|places| &places.methods)?;
        Some((place, (*self.random.choice(METHODS)?).into()))
    }

    fn borrow(&mut self) -> Option<(Place, String)> {
        let place = self.place(|places| &places.borrows)?;
        let said = self.said(&place);
        let new = if said.contains("mut") { said.replace("mut ", "") } else { format!("{said}mut ") };
        Some((place, new))
    }

    /// Calls a type by another name, or puts an item into the text once more under another name.
    fn alias(&mut self) -> Option<(Place, String)> {
        let place = self.place(|places| &places.types)?;
        let said = self.said(&place).to_owned();
        let name = format!("Alias{}", self.random.u16(..));
        let end = self.text.len();
        let mut rest = self.text[place.end..end].to_owned();
        rest.push_str(&format!("\npub type {name} = {said};\n"));
        Some((place.start..end, format!("{name}{rest}")))
    }
}
