;; What wrong code can do to the memory of its own invocation, by arguments of eight bytes each.
(module
  (import "splinter" "get" (func $get (param i32 i32 i32 i32 i32) (result i64)))
  (memory (export "memory") 256 256)
  (global (export "__heap_base") i32 (i32.const 80000))
  (global $kept (mut i64) (i64.const 0))
  (global $kept_too (mut f64) (f64.const 0))
  (data (i32.const 65536) "key")

  (func $argument (param $call i32) (param $index i32) (result i64)
    (i64.load (i32.add (i32.load offset=16 (local.get $call)) (i32.shl (local.get $index) (i32.const 3)))))
  (func $word (param $call i32) (param $index i32) (result i32)
    (i32.wrap_i64 (call $argument (local.get $call) (local.get $index))))
  (func $answer (param $call i32) (param $value i64) (result i64)
    (i64.store (i32.load offset=24 (local.get $call)) (local.get $value))
    (i32.store offset=28 (local.get $call) (i32.const 8))
    (i64.const 0))

  ;; Reads eight bytes.
  (func (export "run_peek") (param $call i32) (result i64)
    (call $answer (local.get $call) (i64.load (call $word (local.get $call) (i32.const 0)))))
  ;; Reads them with the largest constant offset.
  (func (export "run_peek_far") (param $call i32) (result i64)
    (call $answer (local.get $call) (i64.load offset=4294967295 (call $word (local.get $call) (i32.const 0)))))
  ;; Reads sixteen bytes.
  (func (export "run_peek_wide") (param $call i32) (result i64)
    (call $answer (local.get $call)
      (i64x2.extract_lane 1 (v128.load offset=16777216 (call $word (local.get $call) (i32.const 0))))))
  ;; Writes eight bytes, then returns the third argument.
  (func (export "run_poke") (param $call i32) (result i64)
    (local $code i64)
    (local.set $code (call $argument (local.get $call) (i32.const 2)))
    (i64.store (call $word (local.get $call) (i32.const 0)) (call $argument (local.get $call) (i32.const 1)))
    (local.get $code))
  ;; Writes four bytes, then returns the third argument.
  (func (export "run_poke_word") (param $call i32) (result i64)
    (local $code i64)
    (local.set $code (call $argument (local.get $call) (i32.const 2)))
    (i32.store (call $word (local.get $call) (i32.const 0)) (call $word (local.get $call) (i32.const 1)))
    (local.get $code))
  (func (export "run_poke_far") (param $call i32) (result i64)
    (i64.store offset=4294967295 (call $word (local.get $call) (i32.const 0)) (i64.const -1))
    (i64.const 0))
  ;; Writes a word at each step from .. to, and into the globals.
  (func (export "run_fill") (param $call i32) (result i64)
    (local $at i32) (local $to i32) (local $step i32) (local $value i64) (local $code i64)
    (local.set $at (call $word (local.get $call) (i32.const 0)))
    (local.set $to (call $word (local.get $call) (i32.const 1)))
    (local.set $step (call $word (local.get $call) (i32.const 2)))
    (local.set $value (call $argument (local.get $call) (i32.const 3)))
    (local.set $code (call $argument (local.get $call) (i32.const 4)))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $to)))
        (i64.store (local.get $at) (local.get $value))
        (local.set $at (i32.add (local.get $at) (local.get $step)))
        (br $next)))
    (global.set $kept (local.get $value))
    (global.set $kept_too (f64.reinterpret_i64 (local.get $value)))
    (local.get $code))
  ;; Counts the steps from .. to at which the word is found: its complement is given, since arguments are in memory too.
  (func (export "run_seek_read") (param $call i32) (result i64)
    (local $at i32) (local $to i32) (local $step i32) (local $value i64) (local $found i64)
    (local.set $at (call $word (local.get $call) (i32.const 0)))
    (local.set $to (call $word (local.get $call) (i32.const 1)))
    (local.set $step (call $word (local.get $call) (i32.const 2)))
    (local.set $value (i64.xor (call $argument (local.get $call) (i32.const 3)) (i64.const -1)))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $to)))
        (if (i64.eq (i64.load (local.get $at)) (local.get $value))
          (then (local.set $found (i64.add (local.get $found) (i64.const 1)))))
        (local.set $at (i32.add (local.get $at) (local.get $step)))
        (br $next)))
    (call $answer (local.get $call) (local.get $found)))
  ;; Says what the globals hold.
  (func (export "run_globals_read") (param $call i32) (result i64)
    (call $answer (local.get $call)
      (i64.or (global.get $kept) (i64.reinterpret_f64 (global.get $kept_too)))))
  ;; Uses memory as safe code would: all of the arena, of the reply and of the stack's top, and a lent object.
  (func (export "run_claim") (param $call i32) (result i64)
    (local $at i32) (local $to i32) (local $value i64)
    (local.set $value (call $argument (local.get $call) (i32.const 0)))
    (drop (call $get (i32.const 0) (i32.load offset=48 (local.get $call)) (i32.const 65536) (i32.const 3)
      (i32.const 65000)))
    ;; Only the upper part of the stack.
    (local.set $at (i32.const 64384))
    (loop $stack
      (i64.store (local.get $at) (local.get $value))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (br_if $stack (i32.lt_u (local.get $at) (i32.const 65408))))
    (local.set $to (i32.load (i32.const 65412)))
    (local.set $at (i32.load (i32.const 65408)))
    (i32.store (i32.const 65408) (local.get $to))
    (loop $arena
      (i64.store (local.get $at) (local.get $value))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (br_if $arena (i32.lt_u (i32.add (local.get $at) (i32.const 8)) (local.get $to))))
    (local.set $at (i32.load offset=24 (local.get $call)))
    (local.set $to (i32.add (local.get $at) (i32.load offset=32 (local.get $call))))
    (i32.store offset=28 (local.get $call) (i32.load offset=32 (local.get $call)))
    (loop $reply
      (i64.store (local.get $at) (local.get $value))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (br_if $reply (i32.lt_u (i32.add (local.get $at) (i32.const 8)) (local.get $to))))
    (i64.const 0)))
