//! How a worker runs code that it does not trust: stacks, arenas, and the ways off a stack.
//!
//! A worker has its own stack and lends another one, with a guard below it, to the extension that it
//! polls. The extension comes back by returning, or it is left: by [`running::leave`] (panic, out of
//! memory, too little stack for a host call) or by the fault handler (stack overflow). Leaving runs no
//! destructor and unwinds nothing: what the extension owned lies in an arena that is dropped as a whole.
//!
//! ```text
//!   worker's stack          extension's stack (mapped once, pooled)
//!   ┌────────────┐          ┌──────────────────────────────────────────────┬─────────┐
//!   │ poll ──────┼─ run_on ▶│ run ▶ future ▶ host call        ◀ grows down │  guard  │
//!   │      ◀─────┼── return, leave, or the fault handler ───┘              │ no touch│
//!   └────────────┘          └──────────────────────────────────────────────┴─────────┘
//! ```
//!
//! Or it is parked: the timer's signal finds its slice over ([`preempt`]) and goes back to the worker with
//! everything left on the stack, to be resumed on the same thread or forgotten. [`watchdog`] looks whether
//! workers come back at all. Nothing here knows what an extension is; `extension::invocation` does.

pub mod arena;
pub mod cycles;
pub mod fault;
pub mod heartbeat;
pub mod load;
mod lost;
pub mod offers;
pub mod preempt;
pub mod region;
pub mod running;
pub mod signal;
pub mod stack;
pub mod watchdog;

#[cfg(test)]
mod tests;
