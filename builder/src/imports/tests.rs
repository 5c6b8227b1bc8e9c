//! Tests of the import check on forged, cut and mutated objects.

use super::check;
use crate::BuildError;

const PAGE: u64 = 0x1000;

/// A small shared object, described by its parts.
struct Forged {
    segments: Vec<(u32, u32)>,
    symbols: Vec<(&'static str, u8, bool)>,
    dynamic: Vec<(u64, u64)>,
    library: &'static str,
    relocation: u32,
}

impl Default for Forged {
    fn default() -> Forged {
        Forged {
            segments: vec![(super::PT_GNU_STACK, 6)],
            symbols: vec![("memcpy", 0, true), ("SPLINTER_ARTEFACT", 1, false)],
            dynamic: vec![],
            library: "",
            relocation: 8,
        }
    }
}

impl Forged {
    /// Returns the bytes: headers, then strings, symbols, hash table, relocation and the dynamic table.
    fn bytes(&self) -> Vec<u8> {
        let mut strings = vec![0u8];
        let mut add = |text: &str| {
            let at = strings.len() as u32;
            strings.extend(text.bytes().chain([0]));
            at
        };
        let library = u64::from(add(self.library));
        let mut symbols = vec![0u8; 24];
        for (name, kind, undefined) in &self.symbols {
            symbols.extend(add(name).to_le_bytes());
            symbols.extend([1 << 4 | kind, 0, u8::from(!undefined), 0]);
            symbols.extend([0; 16]);
        }
        let mut body = strings;
        body.resize(body.len().next_multiple_of(8), 0);
        let string_bytes = body.len() as u64;
        let symbol_at = PAGE + body.len() as u64;
        body.extend(symbols);
        let hash_at = PAGE + body.len() as u64;
        body.extend([1u32, self.symbols.len() as u32 + 1].iter().flat_map(|word| word.to_le_bytes()));
        let relocation_at = PAGE + body.len() as u64;
        body.extend([0u64, u64::from(self.relocation), 0].iter().flat_map(|word| word.to_le_bytes()));
        let mut dynamic = vec![(5, PAGE), (10, string_bytes), (6, symbol_at), (11, 24), (4, hash_at)];
        dynamic.extend([(7, relocation_at), (8, 24)]);
        if !self.library.is_empty() {
            dynamic.push((1, library));
        }
        dynamic.extend(self.dynamic.iter().copied().chain([(0, 0)]));
        let dynamic_at = PAGE + body.len() as u64;
        body.extend(dynamic.iter().flat_map(|(tag, value)| [*tag, *value]).flat_map(u64::to_le_bytes));
        let mut segments = vec![(1, 5, PAGE, body.len() as u64)];
        segments.push((2, 6, dynamic_at, dynamic.len() as u64 * 16));
        segments.extend(self.segments.iter().map(|(kind, flags)| (*kind, *flags, PAGE, 8)));
        let mut file =
            vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 62, 0, 1, 0, 0, 0];
        file.resize(64, 0);
        file[32] = 64;
        file[54] = 56;
        file[56] = segments.len() as u8;
        for (kind, flags, address, bytes) in segments {
            file.extend([kind, flags].iter().flat_map(|word| word.to_le_bytes()));
            file.extend(
                [address, address, address, bytes, bytes, 8].iter().flat_map(|word| word.to_le_bytes()),
            );
        }
        file.resize(PAGE as usize, 0);
        file.extend(body);
        file
    }

    fn refusal(&self) -> String {
        match check(&self.bytes()) {
            Err(BuildError::ImportRefused { what }) => what,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_object_with_memory_functions_alone_passes() {
    assert_eq!(check(&Forged::default().bytes()), Ok(()));
    assert_eq!(check(&Forged { library: "libc.so.6", ..Forged::default() }.bytes()), Ok(()));
}

#[test]
fn imports_exports_and_libraries_off_the_list_are_refused() {
    let with = |symbol| {
        let symbols = vec![("SPLINTER_ARTEFACT", 1, false), symbol];
        Forged { symbols, ..Forged::default() }.refusal()
    };
    assert_eq!(with(("system", 0, true)), "it imports system");
    assert_eq!(with(("malloc", 2, false)), "it exports malloc");
    assert_eq!(with(("counter", 6, false)), "counter is thread-local or resolved by code");
    assert_eq!(with(("memcpy", 10, false)), "memcpy is thread-local or resolved by code");
    let nothing = Forged { symbols: vec![], ..Forged::default() };
    assert_eq!(nothing.refusal(), "it does not export SPLINTER_ARTEFACT");
    let library = Forged { library: "libm.so.6", ..Forged::default() };
    assert_eq!(library.refusal(), "it needs the library libm.so.6");
}

#[test]
fn code_at_load_time_is_refused() {
    for (tag, what) in [(12, "DT_INIT"), (13, "DT_FINI"), (25, "DT_INIT_ARRAY"), (26, "DT_FINI_ARRAY")] {
        let forged = Forged { dynamic: vec![(tag, PAGE)], ..Forged::default() };
        assert_eq!(forged.refusal(), format!("its dynamic table has the entry {tag:#x} = 0x1000"), "{what}");
    }
    let forged = Forged { relocation: 37, ..Forged::default() };
    assert_eq!(forged.refusal(), "it has a relocation of type 37");
    let text_relocations = Forged { dynamic: vec![(30, 4)], ..Forged::default() };
    assert_eq!(text_relocations.refusal(), "its dynamic table has the entry 0x1e = 0x4");
}

#[test]
fn strange_segments_are_refused() {
    let with = |segments| Forged { segments, ..Forged::default() }.refusal();
    assert_eq!(with(vec![(super::PT_GNU_STACK, 6), (7, 4)]), "it has a segment of type 0x7");
    assert_eq!(with(vec![(super::PT_GNU_STACK, 7)]), "it wants an executable stack");
    assert_eq!(with(vec![]), "it wants an executable stack");
    let writable = vec![(super::PT_GNU_STACK, 6), (super::PT_LOAD, 7)];
    assert_eq!(with(writable), "it has memory that is writable and executable");
}

#[test]
fn cut_and_mutated_objects_never_panic() {
    let good = Forged::default().bytes();
    for length in (0..256).chain(PAGE as usize - 8..good.len()) {
        assert!(check(&good[..length]).is_err(), "cut at {length}");
    }
    let mut state = 0x5eed_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize
    };
    let places: Vec<usize> = (0..256).chain(PAGE as usize..good.len()).collect();
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..1 + next() % 4 {
            bytes[places[next() % places.len()]] = next() as u8;
        }
        // Any verdict is fine; the check must not panic.
        let _ = check(&bytes);
    }
}
