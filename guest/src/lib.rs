//! Execution of untrusted code on a thread of the server: stacks, arenas, and the ways to leave a stack.
//!
//! A worker has its own stack and lends another one, with a guard below it, to the extension that it polls. The
//! extension returns, or its stack is left: by [`running::leave`] (panic, out of memory, too little stack for a host
//! call) or by the fault handler (stack overflow). Leaving runs no destructor and unwinds nothing: the extension's data
//! lies in an arena that is dropped as a whole.
//!
//! ```text
//!   worker's stack          extension's stack (mapped once, pooled)
//!   ┌────────────┐          ┌──────────────────────────────────────────────┬─────────┐
//!   │ poll ──────┼─ run_on ▶│ run ▶ future ▶ host call        ◀ grows down │  guard  │
//!   │      ◀─────┼── return, leave, or the fault handler ───┘              │ no touch│
//!   └────────────┘          └──────────────────────────────────────────────┴─────────┘
//! ```
//!
//! Or the stack is parked: the timer's signal finds the slice over ([`preempt`]) and returns to the worker with
//! everything left on the stack, which is later resumed on the same thread or discarded. [`watchdog`] checks that
//! workers return at all. [`wasm`] runs code on such a stack that was compiled from WebAssembly. This crate knows no extension and no host; the server's invocations
//! connect them.

pub mod arena;
pub mod border;
pub mod cycles;
pub mod fault;
pub mod heartbeat;
pub mod limits;
mod lost;
pub mod preempt;
pub mod preemption_backoff;
pub mod region;
pub mod running;
pub mod signal;
pub mod stack;
mod trap;
pub mod wasm;
pub mod watchdog;

#[cfg(test)]
mod tests;
#[path = "../../store/src/weakened.rs"]
mod weakened;
