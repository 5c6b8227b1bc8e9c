//! The check of a module: what it may import and export, how its memory is laid out, which instructions it may have,
//! how large its parts are.
//!
//! A server gives a module exactly the functions, the memory and the entry points that `sandstorm::abi::wasm32` lists,
//! so anything else is refused here with the reason, before anything is compiled. The limits bound the compiler's work.

use wasmparser::BinaryReaderError;
use wasmparser::CompositeInnerType;
use wasmparser::ConstExpr;
use wasmparser::DataKind;
use wasmparser::ElementItems;
use wasmparser::ElementKind;
use wasmparser::ExternalKind;
use wasmparser::FuncType;
use wasmparser::FunctionBody;
use wasmparser::Import;
use wasmparser::Operator;
use wasmparser::Parser;
use wasmparser::Payload;
use wasmparser::TypeRef;
use wasmparser::TypeSectionReader;
use wasmparser::ValType;
use wasmparser::Validator;
use wasmparser::WasmFeatures;

use super::wasm32;
use super::wasm32::HEAP_BASE;
use super::wasm32::IMPORT_MODULE;
use super::wasm32::IMPORTS;
use super::wasm32::MEMORY;
use super::wasm32::Value;
use crate::limits;

/// The language of modules. Bulk memory and the rest of the reference types are not in it: what copies memory or changes
/// a table in one instruction can hold a core, and no interrupt ends it.
const LANGUAGE: WasmFeatures = WasmFeatures::MVP
    .union(WasmFeatures::MUTABLE_GLOBAL)
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::SIMD)
    .union(WasmFeatures::CALL_INDIRECT_OVERLONG);

/// What the check learns of a module on its way through the sections.
#[derive(Default)]
struct Seen {
    /// Types of the functions of the type section; `None` for any other type.
    types: Vec<Option<FuncType>>,
    /// The type of each function, imported ones first.
    functions: Vec<u32>,
    /// Initial values of immutable i32 globals; `None` for any other global.
    constants: Vec<Option<u32>>,
    imports: Vec<String>,
    memory_exported: bool,
    entries: Vec<String>,
    heap_base: Option<usize>,
    table_elements: u64,
    memory: bool,
    /// The lowest address of data, and the end of all data.
    data: Option<(usize, usize)>,
}

/// Refuses a module that is too large to be looked at.
pub(super) fn bounds(module: &[u8]) -> Result<(), String> {
    if module.len() > limits::MODULE_BYTES_MAX {
        return Err(format!("the module has more than {} bytes", limits::MODULE_BYTES_MAX));
    }
    Ok(())
}

/// Checks a module whose functions have these names; the error is the reason of the refusal.
pub(super) fn check(module: &[u8], functions: &[String]) -> Result<(), String> {
    let mut seen = Seen::default();
    for payload in Parser::new(0).parse_all(module) {
        seen.section(&payload.map_err(unreadable)?)?;
    }
    seen.complete(functions)?;
    // Last, because the sizes bound its work, and the reasons above say more.
    Validator::new_with_features(LANGUAGE).validate_all(module).map_err(invalid)?;
    Ok(())
}

fn unreadable(error: BinaryReaderError) -> String {
    format!("the module cannot be read: {error}")
}

fn invalid(error: BinaryReaderError) -> String {
    format!("the module is not valid, or not in the language of extensions: {error}")
}

impl Seen {
    fn section(&mut self, payload: &Payload<'_>) -> Result<(), String> {
        match payload {
            Payload::TypeSection(section) => self.types(section)?,
            Payload::ImportSection(section) => {
                for import in section.clone().into_imports() {
                    self.import(&import.map_err(unreadable)?)?;
                }
            }
            Payload::FunctionSection(section) => {
                let all = section.count().saturating_add(self.functions.len() as u32);
                at_most("functions", all, limits::MODULE_FUNCTIONS_MAX)?;
                for kind in section.clone() {
                    self.functions.push(kind.map_err(unreadable)?);
                }
            }
            Payload::TableSection(section) => {
                at_most("tables", section.count(), 1_u32)?;
                for table in section.clone() {
                    self.table_elements = table.map_err(unreadable)?.ty.initial;
                    at_most("elements in its table", self.table_elements, limits::MODULE_TABLE_ELEMENTS_MAX)?;
                }
            }
            Payload::MemorySection(section) => {
                at_most("memories", section.count(), 1_u32)?;
                for memory in section.clone() {
                    check_memory(&memory.map_err(unreadable)?)?;
                    self.memory = true;
                }
            }
            Payload::GlobalSection(section) => {
                at_most("globals", section.count(), limits::MODULE_GLOBALS_MAX)?;
                for global in section.clone() {
                    let global = global.map_err(unreadable)?;
                    let constant = !global.ty.mutable && global.ty.content_type == ValType::I32;
                    self.constants.push(constant.then(|| constant_of(&global.init_expr)).flatten());
                }
            }
            Payload::ExportSection(section) => {
                for export in section.clone() {
                    let export = export.map_err(unreadable)?;
                    self.export(export.name, export.kind, export.index)?;
                }
            }
            Payload::StartSection { .. } => return Err("the module has a start function".into()),
            Payload::ElementSection(section) => {
                at_most("segments of elements", section.count(), limits::MODULE_SEGMENTS_MAX)?;
                for element in section.clone() {
                    self.element(&element.map_err(unreadable)?)?;
                }
            }
            Payload::CodeSectionEntry(body) => check_function(body)?,
            Payload::DataSection(section) => {
                at_most("segments of data", section.count(), limits::MODULE_SEGMENTS_MAX)?;
                for data in section.clone() {
                    let data = data.map_err(unreadable)?;
                    self.data(&data.kind, data.data.len())?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn types(&mut self, section: &TypeSectionReader<'_>) -> Result<(), String> {
        at_most("types", section.count(), limits::MODULE_TYPES_MAX)?;
        for group in section.clone() {
            for kind in group.map_err(unreadable)?.into_types() {
                self.types.push(match kind.composite_type.inner {
                    CompositeInnerType::Func(function) => Some(function),
                    _ => None,
                });
            }
        }
        Ok(())
    }

    fn import(&mut self, import: &Import<'_>) -> Result<(), String> {
        let name = format!("{:?} of module {:?}", cut(import.name), cut(import.module));
        let TypeRef::Func(kind) = import.ty else {
            return Err(format!("the module imports {name}, which is not a function"));
        };
        let known = IMPORTS.iter().find(|known| import.module == IMPORT_MODULE && known.name == import.name);
        let Some(known) = known else {
            return Err(format!("the module imports {name}, which no server has"));
        };
        let result = known.result.as_slice();
        match self.types.get(kind as usize) {
            Some(Some(found)) if same(found.params(), known.parameters) && same(found.results(), result) => {}
            _ => {
                let wanted = signature(known.parameters, result);
                return Err(format!("the module imports {name} with another type than {wanted}"));
            }
        }
        if self.imports.iter().any(|before| before == import.name) {
            return Err(format!("the module imports {name} twice"));
        }
        self.imports.push(import.name.into());
        self.functions.push(kind);
        Ok(())
    }

    fn export(&mut self, name: &str, kind: ExternalKind, index: u32) -> Result<(), String> {
        match (name, kind) {
            (MEMORY, ExternalKind::Memory) => self.memory_exported = true,
            (HEAP_BASE, ExternalKind::Global) => {
                let value = self.constants.get(index as usize).copied().flatten();
                let value =
                    value.ok_or_else(|| format!("{HEAP_BASE} is not an immutable i32 with a constant"))?;
                self.heap_base = Some(value as usize);
            }
            (_, ExternalKind::Func) if name.starts_with(wasm32::ENTRY_PREFIX) => {
                let kind = self.functions.get(index as usize).and_then(|kind| self.types.get(*kind as usize));
                match kind {
                    Some(Some(found))
                        if found.params() == [ValType::I32] && found.results() == [ValType::I64] => {}
                    _ => return Err(format!("{} has another type than (i32) -> i64", cut(name))),
                }
                self.entries.push(name.into());
            }
            _ => return Err(format!("the module exports {:?}, which no server uses", cut(name))),
        }
        Ok(())
    }

    fn element(&mut self, element: &wasmparser::Element<'_>) -> Result<(), String> {
        let count = match &element.items {
            ElementItems::Functions(items) => items.count(),
            ElementItems::Expressions(_, items) => items.count(),
        };
        let ElementKind::Active { offset_expr, .. } = &element.kind else {
            return Err("the module has elements that are not placed in its table".into());
        };
        let offset = constant_of(offset_expr).ok_or("the module places elements at no constant index")?;
        if u64::from(offset) + u64::from(count) > self.table_elements {
            return Err("the module places elements beyond its table".into());
        }
        Ok(())
    }

    fn data(&mut self, kind: &DataKind<'_>, bytes: usize) -> Result<(), String> {
        let DataKind::Active { offset_expr, .. } = kind else {
            return Err("the module has data that is not placed in its memory".into());
        };
        let offset = constant_of(offset_expr).ok_or("the module places data at no constant address")?;
        let (start, end) = (offset as usize, (offset as usize).saturating_add(bytes));
        let (lowest, highest) = self.data.unwrap_or((start, end));
        self.data = Some((lowest.min(start), highest.max(end)));
        Ok(())
    }

    /// Checks what can be told after the last section.
    fn complete(&self, functions: &[String]) -> Result<(), String> {
        if !self.memory || !self.memory_exported {
            return Err(format!("the module has no memory of its own that it exports as {MEMORY:?}"));
        }
        let heap_base = self.heap_base.ok_or_else(|| format!("the module does not export {HEAP_BASE:?}"))?;
        let (from, to) = (wasm32::DATA_AT, wasm32::DATA_AT + limits::MODULE_DATA_BYTES_MAX);
        if heap_base < from || heap_base > to {
            return Err(format!("{HEAP_BASE} is {heap_base}, which is not from {from} to {to}"));
        }
        if let Some((start, end)) = self.data
            && (start < from || end > heap_base)
        {
            return Err(format!("the module places data outside of {from} to {HEAP_BASE}"));
        }
        for function in functions {
            if !self.entries.iter().any(|entry| entry.strip_prefix(wasm32::ENTRY_PREFIX) == Some(function)) {
                return Err(format!("the module does not export {}{function}", wasm32::ENTRY_PREFIX));
            }
        }
        match self.entries.len() == functions.len() {
            true => Ok(()),
            false => Err("the module exports functions that are not listed".into()),
        }
    }
}

fn check_memory(memory: &wasmparser::MemoryType) -> Result<(), String> {
    let pages = (wasm32::MEMORY_BYTES / wasm32::PAGE_BYTES) as u64;
    let plain = !memory.memory64 && !memory.shared && memory.page_size_log2.is_none();
    if plain && memory.initial == pages && memory.maximum == Some(pages) {
        return Ok(());
    }
    Err(format!(
        "the module's memory is not one of 32 bits, not shared, with exactly {pages} pages at all times"
    ))
}

/// Checks the size of a function, which bounds the work of validating and compiling it.
fn check_function(body: &FunctionBody<'_>) -> Result<(), String> {
    let bytes = body.range().len() as u64;
    at_most("bytes in a function", bytes, limits::MODULE_FUNCTION_BYTES_MAX as u64)?;
    let mut locals = 0;
    for group in body.get_locals_reader().map_err(unreadable)? {
        locals += u64::from(group.map_err(unreadable)?.0);
    }
    at_most("locals in a function", locals, limits::MODULE_LOCALS_MAX)?;
    let mut targets = 0;
    let mut operators = body.get_operators_reader().map_err(unreadable)?;
    while !operators.eof() {
        match operators.read().map_err(unreadable)? {
            Operator::BrTable { targets: table } => targets += u64::from(table.len()),
            Operator::MemoryCopy { .. } => return Err(holds_a_core("memory.copy")),
            Operator::MemoryFill { .. } => return Err(holds_a_core("memory.fill")),
            _ => {}
        }
    }
    at_most("targets of branch tables in a function", targets, limits::MODULE_BRANCH_TARGETS_MAX)
}

/// Returns the refusal of an instruction that moves memory at once.
fn holds_a_core(instruction: &str) -> String {
    format!(
        "the module has the instruction {instruction}, which no signal interrupts: compile with -mno-bulk-memory, or \
         for the processor mvp (clang: -mcpu=mvp)"
    )
}

fn at_most(what: &str, found: impl Into<u64>, limit: impl Into<u64>) -> Result<(), String> {
    let (found, limit) = (found.into(), limit.into());
    if found <= limit {
        return Ok(());
    }
    Err(format!("the module has {found} {what}; {limit} are the most"))
}

/// Returns the beginning of a module's name, for a reason.
fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(limits::MODULE_NAME_SHOWN_BYTES_MAX)]
}

/// Returns the value of an expression that is one constant.
fn constant_of(expression: &ConstExpr<'_>) -> Option<u32> {
    let mut operators = expression.get_operators_reader();
    match (operators.read().ok()?, operators.read().ok()?) {
        (Operator::I32Const { value }, Operator::End) => Some(value.cast_unsigned()),
        _ => None,
    }
}

fn same(found: &[ValType], wanted: &[Value]) -> bool {
    found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| *found == type_of(*wanted))
}

fn type_of(value: Value) -> ValType {
    match value {
        Value::I32 => ValType::I32,
        Value::I64 => ValType::I64,
        Value::F64 => ValType::F64,
    }
}

fn signature(parameters: &[Value], results: &[Value]) -> String {
    let list = |values: &[Value]| {
        let names: Vec<String> = values.iter().map(|value| type_of(*value).to_string()).collect();
        names.join(", ")
    };
    format!("({}) -> ({})", list(parameters), list(results))
}
