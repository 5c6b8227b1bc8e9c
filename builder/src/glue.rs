//! The trusted crate around an extension: entry points, allocator, panic handler.
//!
//! One source text per extension and target, made of the target's template, the one of both, and a line per function.
//! Besides the SDK, it is the only code in an artefact that may use `unsafe`. The only text of the tenant in it is
//! function names, which the check has verified to be plain identifiers.

use crate::checked::Function;
use crate::checked::Mode;

/// The beginning of the glue of a shared object, that of a module, and the module `runtime` of both.
pub(crate) const TEMPLATES: [&str; 3] = [OBJECT, MODULE, RUNTIME];
const OBJECT: &str = include_str!("../glue.rs");
const MODULE: &str = include_str!("../glue_wasm.rs");
const RUNTIME: &str = include_str!("../glue_runtime.rs");

/// Returns the glue of an extension as a module: names and modes of the functions stand in the artefact's description.
pub(crate) fn module_source(crate_name: &str, functions: &[Function]) -> String {
    let mut text = beginning(MODULE, crate_name);
    for function in functions {
        text.push_str(&format!("entry!({}, run_{0});\n", function.name));
    }
    text
}

/// Returns the glue of an extension as a shared object.
pub(crate) fn source(sdk_hash: &[u8; 32], crate_name: &str, functions: &[Function]) -> String {
    let mut text = beginning(OBJECT, crate_name);
    text.push_str(&format!("const SDK_HASH: [u8; 32] = {sdk_hash:?};\n"));
    text.push_str(&format!("const FUNCTION_COUNT: usize = {};\n\n", functions.len()));
    for function in functions {
        text.push_str(&format!("entry!({}, run_{0});\n", function.name));
    }
    text.push_str("\nstatic FUNCTIONS: [Function; FUNCTION_COUNT] = [\n");
    for function in functions {
        let mode = match function.mode {
            Mode::Read => 0,
            Mode::Write => 1,
        };
        text.push_str(&format!("    function(\"{}\", {mode}, run_{0}),\n", function.name));
    }
    text.push_str("];\n");
    text
}

/// Returns what precedes the functions of the tenant's crate.
fn beginning(template: &str, crate_name: &str) -> String {
    format!("{template}\nmod runtime {{\n{RUNTIME}}}\n\nextern crate {crate_name} as tenant;\n\n")
}
