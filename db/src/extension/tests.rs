//! Invocations of functions that are linked into the test, over a real store.
//!
//! What only a compiled artefact can show (panics, out of memory, loading) is in `db/tests/artefacts.rs`.

mod arriving;
mod depth;
mod effects;
mod endings;
mod enumeration;
mod memory;
mod remote;
mod scans;
mod tablets;
mod turns;
pub(crate) mod world;
