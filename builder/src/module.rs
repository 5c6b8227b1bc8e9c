//! WebAssembly modules: from what the linker wrote, or an author brings, to what a server runs.
//!
//! ```text
//! bytes -> lowered -> checked (a child in the sandbox, `child.rs`) -> splinter-wasmc (sandbox) -> machine code
//! ```
//!
//! Guaranteed of a finished module: the imports, exports, memory and language of `sandstorm::abi::wasm32`, and sizes
//! that bound the compiler's work. Not guaranteed: anything about what it computes, or about the words in its memory.

mod check;
mod lower;
#[allow(dead_code, reason = "the offsets are the host's")]
#[path = "../../sandstorm/src/abi/wasm32.rs"]
pub(crate) mod wasm32;

/// The texts by which modules are lowered and checked.
pub(crate) const RULES: [&str; 2] = [include_str!("module/check.rs"), include_str!("module/lower.rs")];

/// Lowers and checks a module with functions of these names; the error is the reason of the refusal.
pub(crate) fn finish(module: &[u8], functions: &[String]) -> Result<Vec<u8>, String> {
    check::bounds(module)?;
    let module = lower::lower(module)?;
    check::check(&module, functions)?;
    Ok(module)
}
