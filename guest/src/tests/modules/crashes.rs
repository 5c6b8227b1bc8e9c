//! Tests of what ends the process: faults and panics of imports, and faults of a module that cannot be.

use std::env;
use std::ffi::c_void;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::ptr;
use std::sync::Arc;

use super::{Runner, compile};
use crate::running::{self, ModuleBounds, ModuleEntry};
use crate::stack::{Cause, StackEntry};
use crate::tests::{reads_a_wild_address, set_up};
use crate::wasm::{Code, Import, Memory, Type, Value};

unsafe fn panics(_: &Memory, _: &mut [Value]) -> Result<(), Cause> {
    panic!("an import that panics")
}

unsafe fn faults(_: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    // SAFETY: deliberately unsound: the test shows who ends.
    values[0].set_u64(unsafe { (values[0].as_u64() as *const u64).read_volatile() });
    Ok(())
}

/// Runs native code in the place of a module's, which takes `memory` for that of the module.
fn run_as_module(entry: StackEntry, data: usize, memory: (usize, usize)) {
    let (_guarded, mut pool) = set_up();
    let stack = pool.take().expect("a stack");
    let code = (entry as usize, entry as usize + 4096);
    let module = ModuleEntry { entry, data: data as *mut c_void, bounds: ModuleBounds { code, memory } };
    let (arena, context) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: deliberately unsound: the test shows who ends.
    let _ended = unsafe { running::run_module(&stack, arena, context, u64::MAX, module) };
}

/// The child process of the next test, which must crash; not a test by itself.
#[test]
#[ignore = "crashes; run by the test after it"]
fn child_that_crashes() {
    const CRASHING: &[Import] = &[
        Import { name: "panics", parameters: &[Type::I32], result: Some(Type::I64), call: panics },
        Import { name: "faults", parameters: &[Type::I32], result: Some(Type::I64), call: faults },
    ];
    let Ok(case) = env::var("SPLINTER_CRASH") else { return };
    let mut runner = Runner::new();
    if case == "panics" || case == "faults" {
        let text = format!(
            r#"(module (import "splinter" "{case}" (func $f (param i32) (result i64)))
            (memory (export "memory") 256 256) (global (export "__heap_base") i32 (i32.const 65536))
            (func (export "run") (param i32) (result i64) (call $f (local.get 0))))"#
        );
        // SAFETY: our compiler made it of the text above.
        runner.code = Arc::new(unsafe { Code::load(&compile(text.as_bytes()), CRASHING) }.expect("a module"));
        let mut instance = runner.instance();
        let _ended = runner.call(&mut instance, "run", 64);
    }
    match case.as_str() {
        // An access outside of the memory that it has, and one inside at an instruction that Wasmtime did not make.
        "outside" => run_as_module(reads_a_wild_address, 1 << 32, (1 << 40, 1 << 41)),
        "unknown" => run_as_module(reads_a_wild_address, 1 << 32, (0, 1 << 40)),
        _ => {}
    }
    unreachable!("the fault was swallowed");
}

#[test]
fn faults_of_imports_and_of_wrong_code_end_the_process() {
    let program = env::current_exe().expect("a test knows its program");
    for (case, signal, said) in [
        ("panics", libc::SIGABRT, "an import that panics"),
        ("faults", libc::SIGSEGV, ""),
        ("outside", libc::SIGABRT, "a module faulted where it cannot"),
        ("unknown", libc::SIGABRT, "a module faulted where it cannot"),
    ] {
        let child = Command::new(&program)
            .args(["--exact", "tests::modules::crashes::child_that_crashes", "--ignored", "--nocapture"])
            .env("SPLINTER_CRASH", case)
            .output()
            .expect("the child starts");
        assert_eq!(child.status.signal(), Some(signal), "{case}: {child:?}");
        assert!(String::from_utf8_lossy(&child.stderr).contains(said), "{case}: {child:?}");
    }
}
