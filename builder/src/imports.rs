//! The import check: the permitted needs and load effects of an artefact.
//!
//! An artefact needs only a few memory functions of the C library, exports one symbol, and runs no code when it is
//! loaded or unloaded. It has no thread-local storage and no code-resolved symbols, which makes unloading sound.
//! Everything here is an allow-list.

use crate::BuildError;
use crate::elf::Malformed;
use crate::elf::Object;
use crate::elf::PT_LOAD;
use crate::limits;

/// The permitted imports of an artefact.
const IMPORTS: [&str; 6] = ["bcmp", "memcmp", "memcpy", "memmove", "memset", "strlen"];
/// The only export of an artefact.
const EXPORT: &str = "SPLINTER_ARTEFACT";
/// The libraries that it may name.
const LIBRARIES: [&str; 1] = ["libc.so.6"];

const DT_NEEDED: u64 = 1;
const DT_FLAGS: u64 = 30;
const DT_FLAGS_1: u64 = 0x6fff_fffb;
/// Tags of the dynamic table without an effect of their own: tables, sizes, hashes, the object's name.
const PLAIN_TAGS: [u64; 19] =
    [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 20, 23, 35, 36, 37, 0x6fff_fef5, 0x6fff_fff9, 0x6fff_fffa];
/// The permitted bits of DT_FLAGS: SYMBOLIC, BIND_NOW.
const FLAGS: u64 = 2 | 8;
/// The permitted bits of DT_FLAGS_1: NOW.
const FLAGS_1: u64 = 1;
/// Relocations that only compute addresses: 64, GLOB_DAT, JUMP_SLOT, RELATIVE.
const RELOCATIONS: [u32; 4] = [1, 6, 7, 8];

const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PT_GNU_STACK: u32 = 0x6474_e551;
const PT_GNU_RELRO: u32 = 0x6474_e552;
const PT_GNU_PROPERTY: u32 = 0x6474_e553;
/// Segments without an effect beyond memory; thread-local storage and an interpreter are not included.
const SEGMENTS: [u32; 8] =
    [PT_LOAD, PT_DYNAMIC, PT_NOTE, PT_PHDR, PT_GNU_EH_FRAME, PT_GNU_STACK, PT_GNU_RELRO, PT_GNU_PROPERTY];
const EXECUTE: u32 = 1;
const WRITE: u32 = 2;
const SYMBOL_THREAD_LOCAL: u8 = 6;
const SYMBOL_BY_CODE: u8 = 10;

/// Refuses an artefact with effects or needs beyond the list.
///
/// # Errors
/// [`BuildError::ImportRefused`] with the first reason.
pub(crate) fn check(bytes: &[u8]) -> Result<(), BuildError> {
    let malformed = |Malformed(what)| refused(format!("it is malformed: {what}"));
    if bytes.len() > limits::ARTEFACT_BYTES_MAX {
        return Err(refused(format!(
            "it has {} bytes; {} are the limit",
            bytes.len(),
            limits::ARTEFACT_BYTES_MAX
        )));
    }
    let object = Object::parse(bytes).map_err(malformed)?;
    check_segments(&object)?;
    for (tag, value) in object.dynamic().iter().copied() {
        match tag {
            DT_NEEDED => {
                let library = object.string(value).map_err(malformed)?;
                if !LIBRARIES.contains(&&*library) {
                    return Err(refused(format!("it needs the library {library}")));
                }
            }
            DT_FLAGS if value & !FLAGS == 0 => {}
            DT_FLAGS_1 if value & !FLAGS_1 == 0 => {}
            tag if PLAIN_TAGS.contains(&tag) => {}
            tag => return Err(refused(format!("its dynamic table has the entry {tag:#x} = {value:#x}"))),
        }
    }
    for kind in object.relocation_types().map_err(malformed)? {
        if !RELOCATIONS.contains(&kind) {
            return Err(refused(format!("it has a relocation of type {kind}")));
        }
    }
    let mut exported = false;
    for symbol in object.symbols().map_err(malformed)? {
        let name = &*symbol.name;
        if matches!(symbol.kind, SYMBOL_THREAD_LOCAL | SYMBOL_BY_CODE) {
            return Err(refused(format!("{name} is thread-local or resolved by code")));
        }
        match symbol.undefined {
            true if IMPORTS.contains(&name) => {}
            true => return Err(refused(format!("it imports {name}"))),
            false if name == EXPORT => exported = true,
            false => return Err(refused(format!("it exports {name}"))),
        }
    }
    if exported { Ok(()) } else { Err(refused(format!("it does not export {EXPORT}"))) }
}

fn check_segments(object: &Object<'_>) -> Result<(), BuildError> {
    let mut plain_stack = false;
    for segment in object.segments() {
        if !SEGMENTS.contains(&segment.kind) {
            return Err(refused(format!("it has a segment of type {:#x}", segment.kind)));
        }
        if segment.kind == PT_GNU_STACK {
            plain_stack = segment.flags & EXECUTE == 0;
        }
        if segment.memory_bytes > limits::ARTEFACT_BYTES_MAX as u64 {
            return Err(refused(format!("it wants {} bytes of memory", segment.memory_bytes)));
        }
        if segment.kind == PT_LOAD && segment.flags & (WRITE | EXECUTE) == WRITE | EXECUTE {
            return Err(refused("it has memory that is writable and executable".into()));
        }
    }
    if plain_stack { Ok(()) } else { Err(refused("it wants an executable stack".into())) }
}

fn refused(what: String) -> BuildError {
    BuildError::ImportRefused { what }
}

#[cfg(test)]
mod tests;
