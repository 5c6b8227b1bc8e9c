//! Tests of the graph layer over the in-memory database: against a model, at the borders of its two forms
//! of a list, and call by call.
//!
//! Random tests print their seed; `TAO_SEED=n` repeats one.

mod tao {
    pub mod calls;
    pub mod harness;
    pub mod lists;
    pub mod mixes;
    pub mod model;
    pub mod questions;
}
