;; What the self-test runs: see self_test.rs, which holds this module assembled.
(module
  (import "splinter" "now_ms" (func $park (result i64)))
  (memory (export "memory") 256 256)
  (global (export "__heap_base") i32 (i32.const 65600))
  (data (i32.const 65536) "self-test")
  (func (export "run_call") (param i32) (result i64)
    (i64.add (i64.extend_i32_u (local.get 0)) (i64.load8_u (i32.const 65536))))
  (func (export "run_park") (param i32) (result i64)
    (i64.add (call $park) (i64.extend_i32_u (local.get 0))))
  (func (export "run_trap") (param i32) (result i64)
    (i64.load (local.get 0)))
  (func (export "run_unreachable") (param i32) (result i64)
    unreachable))
