//! Tests of what is not loaded: modules of another shape than the border's, and bytes that are no module.

use super::{IMPORTS, load, started};
use crate::wasm::{Code, LoadError, SELF_TEST_MODULE};

/// The parts that a module must have, and the text of a module with others.
fn refusal(parts: &str) -> String {
    match load(format!("(module {parts})").as_bytes()) {
        Err(LoadError::Refused(reason)) => reason,
        other => panic!("{parts}: {other:?}"),
    }
}

#[test]
fn modules_of_another_shape_are_refused() {
    let memory = r#"(memory (export "memory") 256 256)"#;
    let heap = r#"(global (export "__heap_base") i32 (i32.const 70000))"#;
    assert!(load(format!("(module {memory} {heap})").as_bytes()).is_ok());
    for (parts, reason) in [
        (memory.to_owned(), "does not export"),
        (heap.to_owned(), "does not export"),
        (format!(r#"(memory (export "memory") 256) {heap}"#), "does not export"),
        (format!(r#"(memory (export "memory") 16 256) {heap}"#), "does not export"),
        (format!(r#"(memory (export "memory") 16 16) {heap}"#), "does not export"),
        (
            format!(r#"{memory} (global (export "__heap_base") (mut i32) (i32.const 70000))"#),
            "does not export",
        ),
        (format!(r#"{memory} (global (export "__heap_base") i64 (i64.const 70000))"#), "does not export"),
        (format!(r#"{memory} (global (export "__heap_base") i32 (i32.const 7))"#), "heap begins at 7"),
        (format!(r#"{memory} (global (export "__heap_base") i32 (i32.const -1))"#), "heap begins at"),
        (format!(r#"{memory} {heap} (global (export "more") i32 (i32.const 1))"#), "exports more"),
        (
            format!(r#"{memory} {heap} (func (export "f") (param i64) (result i64) (i64.const 0))"#),
            "another type",
        ),
        (format!(r#"{memory} {heap} (func (export "f") (param i32))"#), "another type"),
        (format!(r#"(import "splinter" "unknown" (func)) {memory} {heap}"#), "unknown import"),
        (
            format!(r#"(import "wasi" "park" (func (param i32) (result i64))) {memory} {heap}"#),
            "unknown import",
        ),
        (
            format!(r#"(import "splinter" "park" (func (param i64) (result i64))) {memory} {heap}"#),
            "incompatible",
        ),
        (format!(r#"(import "splinter" "park" (func (param i32))) {memory} {heap}"#), "incompatible"),
        (
            format!(r#"(import "splinter" "memory" (memory 256 256)) {heap} (export "memory" (memory 0))"#),
            "unknown import",
        ),
        (format!(r#"{memory} {heap} (table 1 funcref) (table 1 funcref)"#), "table"),
        (format!(r#"{memory} {heap} (table 70000 funcref)"#), "table"),
        (format!(r#"{memory} {heap} (data (i32.const 16777210) "over the end")"#), "out of bounds"),
        (
            format!(
                r#"(import "splinter" "answer" (func $ask (param i32) (result i64))) {memory} {heap}
                (func $f (drop (call $ask (i32.const 1)))) (start $f)"#
            ),
            "a host call ended the run: WrongCode",
        ),
        (format!(r#"{memory} {heap} (func $f unreachable) (start $f)"#), "unreachable"),
    ] {
        let said = refusal(&parts);
        assert!(said.contains(reason), "{parts}: {said}");
    }
}

#[test]
fn bytes_that_are_no_module_of_the_compiler_are_refused() {
    started();
    for bytes in [&b""[..], SELF_TEST_MODULE, &[0; 4096]] {
        // SAFETY: nothing of it is executed, since it is no machine code of Wasmtime's.
        let refused = unsafe { Code::load(bytes, IMPORTS) };
        assert!(matches!(refused, Err(LoadError::Refused(_))), "{refused:?}");
    }
}
