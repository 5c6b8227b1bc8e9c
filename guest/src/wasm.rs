//! Modules of WebAssembly: machine code that stays within its own memory whoever wrote its source.
//!
//! Wasmtime's runtime calls the code; the compiler is another program (`wasmc`). A [`Code`] is a loaded module, shared
//! by the workers; an [`Instance`] is its memory and state on one worker. A call of a function is a
//! [`ModuleEntry`](crate::running::ModuleEntry) that [`run_module`](crate::running::run_module) runs on a pooled stack,
//! where it is parked and resumed as native code is.
//!
//! ```text
//!   worker          pooled stack                                        linear memory of the instance
//!   run_module ───▶ entry ▶ Wasmtime ▶ module's code ▶ Import.call      0 .. 16 MiB | nothing up to 4 GiB + guard
//!       ▲                                   │ trap          │ Err(Cause)
//!       └── outcome ◀── cause ◀─────────────┴───────────────┘
//! ```
//!
//! An end of a run travels through Wasmtime's frames as an error: nothing jumps over them, except when a stack is left
//! or discarded for good; then the instance's store is dropped and never called again. Wasmtime runs without its `std`
//! feature, on our signal handlers and our thread-local ([`platform`]). [`start`] checks that this holds on the running
//! machine, and nothing is loaded before.

mod code;
mod engine;
mod entry;
mod import;
mod instance;
mod memory;
mod platform;
mod self_test;
pub mod settings;

pub use code::{Code, InstanceError, LoadError};
pub use engine::Unavailable;
pub use import::{Import, Type, Value};
pub use instance::Instance;
pub use memory::{DATA_START, Memory, STACK_TOP};
pub use self_test::{SELF_TEST_FUNCTIONS, SELF_TEST_MODULE, start};
