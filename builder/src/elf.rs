//! A reader of the parts of a shared object that determine the effects of loading it.
//!
//! Reads 64-bit little-endian ELF for x86-64 through the program headers, as the loader does; section headers, which
//! the loader ignores, are ignored. Anything out of bounds is an error, never a panic.

/// A part is missing or lies outside the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// `p_type` of a loaded segment.
pub(crate) const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;

const DT_PLTRELSZ: u64 = 2;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_STRSZ: u64 = 10;
const DT_JMPREL: u64 = 23;

const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const DYNAMIC_BYTES: usize = 16;
const SYMBOL_BYTES: u64 = 24;
const RELOCATION_BYTES: u64 = 24;
/// A bound for loops over forged counts; no artefact has more symbols or relocations.
const ENTRIES_MAX: u64 = 1 << 20;

/// One program header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// `p_type`.
    pub(crate) kind: u32,
    /// `p_flags`: 1 execute, 2 write, 4 read.
    pub(crate) flags: u32,
    /// Bytes in memory.
    pub(crate) memory_bytes: u64,
    offset: u64,
    address: u64,
    file_bytes: u64,
}

/// One dynamic symbol.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    /// Its name.
    pub(crate) name: String,
    /// The low half of `st_info`: 6 thread-local, 10 resolved by code.
    pub(crate) kind: u8,
    /// Whether another object must provide it.
    pub(crate) undefined: bool,
}

/// A shared object.
pub(crate) struct Object<'b> {
    bytes: &'b [u8],
    segments: Vec<Segment>,
    dynamic: Vec<(u64, u64)>,
}

impl<'b> Object<'b> {
    /// Reads headers and the dynamic table.
    pub(crate) fn parse(bytes: &'b [u8]) -> Result<Object<'b>, Malformed> {
        let head = bytes.get(..HEADER_BYTES).ok_or(Malformed("no ELF header"))?;
        // 64 bits, little-endian, version 1; a shared object for x86-64.
        if head[..7] != [0x7f, b'E', b'L', b'F', 2, 1, 1] || head[16..20] != [3, 0, 62, 0] {
            return Err(Malformed("not a shared object for x86-64"));
        }
        let table = usize::try_from(number::<8>(head, 32)?).map_err(|_| Malformed("program headers"))?;
        let count = number::<2>(head, 56)? as usize;
        if number::<2>(head, 54)? as usize != SEGMENT_BYTES {
            return Err(Malformed("program headers of a strange size"));
        }
        let mut object = Object { bytes, segments: Vec::new(), dynamic: Vec::new() };
        for index in 0..count {
            object.segments.push(segment(bytes, table.saturating_add(index * SEGMENT_BYTES))?);
        }
        object.dynamic = object.read_dynamic()?;
        Ok(object)
    }

    /// Returns the program headers.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns the dynamic table: tags and values.
    pub(crate) fn dynamic(&self) -> &[(u64, u64)] {
        &self.dynamic
    }

    /// Returns a string of the dynamic string table.
    pub(crate) fn string(&self, offset: u64) -> Result<String, Malformed> {
        let table = self.part(DT_STRTAB, DT_STRSZ, "string table")?;
        let text = usize::try_from(offset).ok().and_then(|offset| table.get(offset..));
        let text = text.ok_or(Malformed("a string outside its table"))?;
        let end = text.iter().position(|byte| *byte == 0).ok_or(Malformed("a string without an end"))?;
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    }

    /// Returns the dynamic symbols, without the empty first one.
    pub(crate) fn symbols(&self) -> Result<Vec<Symbol>, Malformed> {
        let hash = self.at(self.tag(DT_HASH).ok_or(Malformed("no symbol hash table"))?, 8)?;
        let count = number::<4>(hash, 4)?;
        if count > ENTRIES_MAX {
            return Err(Malformed("too many symbols"));
        }
        let address = self.tag(DT_SYMTAB).ok_or(Malformed("no symbol table"))?;
        let table = self.at(address, count * SYMBOL_BYTES)?;
        let entries = table.chunks_exact(SYMBOL_BYTES as usize).skip(1);
        entries
            .map(|entry| {
                let name = self.string(number::<4>(entry, 0)?)?;
                Ok(Symbol { name, kind: entry[4] & 15, undefined: number::<2>(entry, 6)? == 0 })
            })
            .collect()
    }

    /// Returns the types of all relocations with explicit addends.
    pub(crate) fn relocation_types(&self) -> Result<Vec<u32>, Malformed> {
        let mut types = Vec::new();
        for (start, bytes) in [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)] {
            if self.tag(start).is_some() {
                for entry in self.part(start, bytes, "relocations")?.chunks_exact(RELOCATION_BYTES as usize) {
                    types.push(number::<4>(entry, 8)? as u32);
                }
            }
        }
        Ok(types)
    }

    /// Returns the value of a tag of the dynamic table.
    fn tag(&self, tag: u64) -> Option<u64> {
        self.dynamic.iter().find(|entry| entry.0 == tag).map(|entry| entry.1)
    }

    /// Returns a part located by one tag and measured by another.
    fn part(&self, start: u64, bytes: u64, what: &'static str) -> Result<&'b [u8], Malformed> {
        let (start, bytes) = self.tag(start).zip(self.tag(bytes)).ok_or(Malformed(what))?;
        self.at(start, bytes)
    }

    /// Returns loaded bytes by address.
    fn at(&self, address: u64, bytes: u64) -> Result<&'b [u8], Malformed> {
        let end = address.checked_add(bytes).ok_or(Malformed("an address beyond the end"))?;
        let segment = self.segments.iter().find(|segment| {
            let top = segment.address.saturating_add(segment.file_bytes);
            segment.kind == PT_LOAD && segment.address <= address && end <= top
        });
        let segment = segment.ok_or(Malformed("an address that is not loaded"))?;
        let offset = segment.offset.checked_add(address - segment.address);
        let range = offset.and_then(|offset| Some(offset..offset.checked_add(bytes)?));
        let range = range.ok_or(Malformed("a segment beyond the end"))?;
        let (start, end) = (usize::try_from(range.start), usize::try_from(range.end));
        let range = start.ok().zip(end.ok()).map(|(start, end)| start..end);
        range.and_then(|range| self.bytes.get(range)).ok_or(Malformed("a segment beyond the file"))
    }

    fn read_dynamic(&self) -> Result<Vec<(u64, u64)>, Malformed> {
        let mut tables = self.segments.iter().filter(|segment| segment.kind == PT_DYNAMIC);
        let (Some(table), None) = (tables.next(), tables.next()) else {
            return Err(Malformed("not exactly one dynamic table"));
        };
        let bytes = self.at(table.address, table.file_bytes)?;
        let mut dynamic = Vec::new();
        for entry in bytes.chunks_exact(DYNAMIC_BYTES) {
            let (tag, value) = (number::<8>(entry, 0)?, number::<8>(entry, 8)?);
            if tag == 0 {
                return Ok(dynamic);
            }
            dynamic.push((tag, value));
        }
        Err(Malformed("a dynamic table without an end"))
    }
}

fn segment(bytes: &[u8], at: usize) -> Result<Segment, Malformed> {
    let end = at.saturating_add(SEGMENT_BYTES);
    let entry = bytes.get(at..end).ok_or(Malformed("program headers beyond the file"))?;
    Ok(Segment {
        kind: number::<4>(entry, 0)? as u32,
        flags: number::<4>(entry, 4)? as u32,
        offset: number::<8>(entry, 8)?,
        address: number::<8>(entry, 16)?,
        file_bytes: number::<8>(entry, 32)?,
        memory_bytes: number::<8>(entry, 40)?,
    })
}

/// Returns a little-endian number of `N` bytes.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<u64, Malformed> {
    let end = at.checked_add(N).ok_or(Malformed("a field beyond its table"))?;
    let field = bytes.get(at..end).ok_or(Malformed("a field beyond its table"))?;
    Ok(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
