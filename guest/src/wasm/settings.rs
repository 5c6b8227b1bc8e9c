//! The settings of WebAssembly, the same for the compiler and for the server.
//!
//! `wasmc` includes this file by its path, so a module is compiled with what the server runs it with. Wasmtime refuses
//! a module whose settings differ; the text of this file is part of what a stored artefact is keyed by, so a changed
//! line rebuilds all modules.
//!
//! What is on: WebAssembly 1.0 and mutable globals, sign extension, conversions without traps, several results,
//! reference types (LLVM encodes an indirect call with their table index), 128-bit vectors. Reference types bring bulk
//! memory along, whose instructions the builder refuses (`builder/src/module/check.rs`).

use crate::limits::EXTENSION_STACK_BYTES;
use wasmtime::{Config, WasmFeatures};

/// Bytes of native stack that a module may use; the rest holds the frames around the call.
pub const MODULE_STACK_BYTES: usize = EXTENSION_STACK_BYTES - (8 << 10);

/// Address space of a linear memory: whatever a 32-bit address reaches, so no access is checked.
pub const MEMORY_RESERVATION_BYTES: u64 = 4 << 30;

/// The settings, as text: this file.
pub const TEXT: &str = include_str!("settings.rs");

/// Proposals that are off although Wasmtime would have them on.
const REFUSED: [WasmFeatures; 10] = [
    WasmFeatures::THREADS,
    WasmFeatures::MEMORY64,
    WasmFeatures::MULTI_MEMORY,
    WasmFeatures::RELAXED_SIMD,
    WasmFeatures::TAIL_CALL,
    WasmFeatures::EXTENDED_CONST,
    WasmFeatures::EXCEPTIONS,
    WasmFeatures::FUNCTION_REFERENCES,
    WasmFeatures::GC,
    WasmFeatures::GC_TYPES,
];

/// The settings that compiler and server share; `wasmc` adds the compiler's own, the server its memories.
pub fn config() -> Config {
    let mut config = Config::new();
    config
        .memory_reservation(MEMORY_RESERVATION_BYTES)
        .memory_may_move(false)
        .memory_init_cow(false)
        .signals_based_traps(true)
        .max_wasm_stack(MODULE_STACK_BYTES)
        .wasm_backtrace_max_frames(None)
        .generate_address_map(false)
        .native_unwind_info(false)
        .epoch_interruption(false)
        .consume_fuel(false)
        .concurrency_support(false);
    for feature in REFUSED {
        config.wasm_features(feature, false);
    }
    config
}
