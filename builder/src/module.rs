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
pub(crate) const RULES: [&str; 4] = [
    include_str!("limits.rs"),
    include_str!("module/check.rs"),
    include_str!("module/lower.rs"),
    include_str!("functions.rs"),
];

/// Lowers and checks a module with functions of these names; the error is the reason of the refusal.
pub(crate) fn finish(module: &[u8], functions: &[String]) -> Result<Vec<u8>, String> {
    check::bounds(module)?;
    let module = lower::lower(module)?;
    check::check(&module, functions)?;
    Ok(module)
}

#[cfg(test)]
mod tests {
    use super::finish;
    use super::wasm32;

    const MODULE: &str = "(module
        (import \"splinter\" \"log\" (func (param i32 i32 i32)))
        (table 2 2 funcref) (elem (i32.const 0) 0 1)
        (memory (export \"memory\") 256 256)
        (global (mut i32) (i32.const 65408))
        (global (export \"__heap_base\") i32 (i32.const 65552))
        (global (export \"__data_end\") i32 (i32.const 65540))
        (func (export \"splinter_copy\") (param i32 i32 i32) (local i32)
            (block (loop (br_table 0 1 0 (local.get 2)))))
        (func (export \"run_f\") (param i32) (result i64)
            (memory.copy (i32.const 65408) (local.get 0) (i32.const 8))
            (call_indirect (param i32 i32 i32) (local.get 0) (i32.const 1) (i32.const 1) (i32.const 0))
            i64.const 0)
        (data (i32.const 65536) \"data\")
        (@custom \"producers\" \"nobody\"))";

    /// The header and the guide for authors of other languages name what there is.
    #[test]
    fn header_and_guide_have_every_import_and_the_version_of_the_border() {
        let header = include_str!("../../ext/get_c/splinter.h");
        let script = include_str!("../../ext/get_as/splinter.ts");
        let guide = include_str!("../../docs/modules.md");
        assert_eq!(header.matches("\nSPLINTER_IMPORT(").count(), wasm32::IMPORTS.len());
        assert_eq!(script.matches("\n@external(").count(), wasm32::IMPORTS.len());
        for import in wasm32::IMPORTS {
            let name = import.name;
            assert!(header.contains(&format!("\nSPLINTER_IMPORT({name})")), "{name}");
            assert!(script.contains(&format!("\n@external(\"splinter\", \"{name}\")")), "{name}");
            assert!(guide.contains(&format!("\n| `{name}` |")), "{name}");
        }
        for (text, language) in [(header, "C"), (script, "AssemblyScript")] {
            assert!(text.contains(&format!(
                "// The border between a Splinter server and a module in {language}: version {} ",
                wasm32::BORDER_VERSION
            )));
        }
        assert!(guide.contains(&format!("\nborder = {} ", wasm32::BORDER_VERSION)));
        assert!(header.contains(&format!("((splinter_block *){})", wasm32::BLOCK_AT)));
        let runtime = include_str!("../../ext/get_as/runtime.ts");
        assert!(runtime.contains(&format!("changetype<Block>({})", wasm32::BLOCK_AT)));
    }

    #[test]
    fn cut_and_mutated_modules_never_panic() {
        let module = wat::parse_str(MODULE).unwrap();
        let functions = ["f".to_owned()];
        let finished = finish(&module, &functions).unwrap();
        assert_eq!(finish(&finished, &functions).unwrap(), finished, "a finished module stays as it is");
        for end in 0..module.len() {
            // Only the custom section at the end is of no use.
            assert!(finish(&module[..end], &functions).is_err() || end >= finished.len());
        }
        let mut state = 1_u64;
        for _ in 0..20_000 {
            let mut mutated = module.clone();
            for _ in 0..3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let place = (state >> 33) as usize % mutated.len();
                mutated[place] = (state >> 24) as u8;
            }
            let _ = finish(&mutated, &functions);
        }
    }
}
