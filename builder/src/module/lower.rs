//! Rewrites what the compiler puts into a module and no server runs.
//!
//! The precompiled `core` of the target copies memory with single instructions, which may work for milliseconds and
//! cannot be interrupted. Each becomes a call of a loop that the glue brings and exports under a name of its own. An
//! instruction and the call have the same operands and, with a padded index, the same length, so nothing else moves.
//!
//! A finished module has these loops only if its author brings them; otherwise its copying instructions stay and are
//! refused.
//!
//! Exports that only the linker wants are removed, and so are custom sections. The result is checked like any module:
//! nothing here needs to be trusted.

use std::ops::Range;

use wasmparser::BinaryReader;
use wasmparser::BinaryReaderError;
use wasmparser::CodeSectionReader;
use wasmparser::Export;
use wasmparser::ExternalKind;
use wasmparser::FunctionBody;
use wasmparser::Operator;
use wasmparser::Parser;
use wasmparser::Payload;
use wasmparser::TypeRef;

/// Exports of the glue and the linker that are removed: the loops by which memory is copied and filled, and the end of
/// the data.
const REMOVED: [&str; 3] = [COPY, FILL, "__data_end"];
const COPY: &str = "splinter_copy";
const FILL: &str = "splinter_fill";

/// The opcode of a call.
const CALL: u8 = 0x10;
/// Bytes of `memory.copy` within the only memory, and of `memory.fill`; longer ones have padded indices.
const COPY_BYTES: usize = 4;
const FILL_BYTES: usize = 3;
/// The number of a section that counts data segments, of use only to instructions that are refused.
const DATA_COUNT_SECTION: u8 = 12;
const CUSTOM_SECTION: u8 = 0;
const EXPORT_SECTION: u8 = 7;
const CODE_SECTION: u8 = 10;

/// The indices of the glue's loops.
#[derive(Default)]
struct Loops {
    copy: Option<u32>,
    fill: Option<u32>,
}

/// Returns the module without copying instructions, unwanted exports and custom sections.
pub(super) fn lower(module: &[u8]) -> Result<Vec<u8>, String> {
    lowered(module).map_err(|error| format!("the module cannot be read: {error}"))
}

fn lowered(module: &[u8]) -> Result<Vec<u8>, BinaryReaderError> {
    let loops = find_loops(module)?;
    let mut imported = 0;
    let mut result = Vec::with_capacity(module.len());
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        if let Payload::ImportSection(section) = &payload {
            for import in section.clone().into_imports() {
                imported += u32::from(matches!(import?.ty, TypeRef::Func(_)));
            }
        }
        match payload {
            Payload::Version { range, .. } => result.extend_from_slice(&module[range]),
            Payload::ExportSection(section) => {
                let exports: Result<Vec<_>, _> = section.into_iter().collect();
                append_section(&mut result, EXPORT_SECTION, &kept_exports(&exports?));
            }
            Payload::CodeSectionStart { range, .. } => {
                append_section(&mut result, CODE_SECTION, &rewrite_code(module, range, &loops, imported)?);
            }
            // The bodies came with the section, and custom sections say nothing to a server.
            other => match other.as_section() {
                Some((DATA_COUNT_SECTION | CUSTOM_SECTION, _)) | None => {}
                Some((number, range)) => append_section(&mut result, number, &module[range]),
            },
        }
    }
    Ok(result)
}

/// Finds the glue's loops among the exports.
fn find_loops(module: &[u8]) -> Result<Loops, BinaryReaderError> {
    let mut loops = Loops::default();
    for payload in Parser::new(0).parse_all(module) {
        let Payload::ExportSection(section) = payload? else { continue };
        for export in section {
            let export = export?;
            match (export.name, export.kind) {
                (COPY, ExternalKind::Func) => loops.copy = Some(export.index),
                (FILL, ExternalKind::Func) => loops.fill = Some(export.index),
                _ => {}
            }
        }
    }
    Ok(loops)
}

/// Returns the code section with its copying instructions replaced. `imported` is the number of imported functions, which
/// come first in the numbering.
fn rewrite_code(
    module: &[u8],
    range: Range<usize>,
    loops: &Loops,
    imported: u32,
) -> Result<Vec<u8>, BinaryReaderError> {
    let contents = &module[range.clone()];
    let mut code = contents.to_vec();
    let bodies = CodeSectionReader::new(BinaryReader::new(contents, range.start))?;
    for (index, body) in (imported..).zip(bodies) {
        rewrite_body(&body?, index, loops, range.start, &mut code)?;
    }
    Ok(code)
}

/// Replaces the copying instructions of the function with this index; `code` begins at `start` of the module.
fn rewrite_body(
    body: &FunctionBody<'_>,
    index: u32,
    loops: &Loops,
    start: usize,
    code: &mut [u8],
) -> Result<(), BinaryReaderError> {
    let mut operators = body.get_operators_reader()?;
    while !operators.eof() {
        let (operator, offset) = operators.read_with_offset()?;
        let bytes = operators.original_position() - offset;
        let (callee, bytes_before) = match operator {
            Operator::MemoryCopy { dst_mem: 0, src_mem: 0 } => (loops.copy, COPY_BYTES),
            Operator::MemoryFill { mem: 0 } => (loops.fill, FILL_BYTES),
            _ => continue,
        };
        // What is left, because there is no loop for it or it stands in the loop, is refused by the check.
        if let Some(callee) = callee.filter(|callee| *callee != index && bytes == bytes_before) {
            call(callee, &mut code[offset - start..offset - start + bytes]);
        }
    }
    Ok(())
}

/// Writes a call of exactly this many bytes, if the index fits.
fn call(callee: u32, place: &mut [u8]) {
    let digits = place.len() - 1;
    if callee >> (7 * digits) != 0 {
        return;
    }
    place[0] = CALL;
    for (digit, byte) in place[1..].iter_mut().enumerate() {
        let more = if digit + 1 < digits { 0x80 } else { 0 };
        *byte = (callee >> (7 * digit)) as u8 & 0x7f | more;
    }
}

/// Appends a section: its number, its length, its contents.
fn append_section(result: &mut Vec<u8>, number: u8, contents: &[u8]) {
    result.push(number);
    append_number(result, contents.len());
    result.extend_from_slice(contents);
}

/// Returns the contents of the export section without what is removed.
fn kept_exports(exports: &[Export<'_>]) -> Vec<u8> {
    let kept: Vec<_> = exports.iter().filter(|export| !REMOVED.contains(&export.name)).collect();
    let mut contents = Vec::new();
    append_number(&mut contents, kept.len());
    for export in kept {
        append_number(&mut contents, export.name.len());
        contents.extend_from_slice(export.name.as_bytes());
        contents.push(match export.kind {
            ExternalKind::Func | ExternalKind::FuncExact => 0,
            ExternalKind::Table => 1,
            ExternalKind::Memory => 2,
            ExternalKind::Global => 3,
            ExternalKind::Tag => 4,
        });
        append_number(&mut contents, export.index as usize);
    }
    contents
}

/// Appends an unsigned number in LEB128.
fn append_number(result: &mut Vec<u8>, mut number: usize) {
    while number > 0x7f {
        result.push(number as u8 & 0x7f | 0x80);
        number >>= 7;
    }
    result.push(number as u8);
}

#[cfg(test)]
mod tests {
    use wasmparser::Operator;
    use wasmparser::Parser;
    use wasmparser::Payload;

    use super::lower;

    /// The calls and copying instructions of a module's functions, in order.
    fn operations(module: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        for payload in Parser::new(0).parse_all(module) {
            let Payload::CodeSectionEntry(body) = payload.unwrap() else { continue };
            for operator in body.get_operators_reader().unwrap() {
                match operator.unwrap() {
                    Operator::Call { function_index } => found.push(format!("call {function_index}")),
                    Operator::MemoryCopy { .. } => found.push("copy".into()),
                    Operator::MemoryFill { .. } => found.push("fill".into()),
                    _ => {}
                }
            }
        }
        found
    }

    fn lowered(text: &str) -> (Vec<u8>, Vec<String>) {
        let lowered = lower(&wat::parse_str(text).unwrap()).unwrap();
        let operations = operations(&lowered);
        (lowered, operations)
    }

    const COPIES: &str = "(func (param i32 i32 i32)
        (memory.copy (local.get 0) (local.get 1) (local.get 2))
        (memory.fill (local.get 0) (local.get 1) (local.get 2))
        (memory.copy (local.get 0) (local.get 1) (local.get 2)))";

    #[test]
    fn copying_instructions_become_calls_of_the_loops() {
        let loops = "(func (export \"splinter_fill\") (param i32 i32 i32))
            (func (export \"splinter_copy\") (param i32 i32 i32))";
        // An import comes first, so the loops are 1 and 2.
        let import = "(import \"splinter\" \"log\" (func (param i32 i32 i32)))";
        let (module, found) =
            lowered(&format!("(module {import} (memory 1) {loops} {COPIES} (@custom \"x\" \"y\"))"));
        assert_eq!(found, ["call 2", "call 1", "call 2"]);
        wasmparser::Validator::new().validate_all(&module).unwrap();
        for payload in Parser::new(0).parse_all(&module) {
            match payload.unwrap() {
                Payload::ExportSection(section) => assert_eq!(section.count(), 0, "the loops are ours alone"),
                Payload::CustomSection(_) => panic!("a custom section"),
                _ => {}
            }
        }
        // Far enough for an index of two bytes.
        let many = "(func)".repeat(300);
        let (module, found) = lowered(&format!("(module (memory 1) {many} {loops} {COPIES})"));
        assert_eq!(found, ["call 301", "call 300", "call 301"]);
        wasmparser::Validator::new().validate_all(&module).unwrap();
    }

    #[test]
    fn without_a_loop_and_within_it_they_stay_to_be_refused() {
        assert_eq!(lowered(&format!("(module (memory 1) {COPIES})")).1, ["copy", "fill", "copy"]);
        let within = "(func (export \"splinter_copy\") (param i32 i32 i32)
            (memory.copy (local.get 0) (local.get 1) (local.get 2)))";
        assert_eq!(lowered(&format!("(module (memory 1) {within})")).1, ["copy"]);
    }
}
