//! The second wall: code that no check of sources has seen reaches nothing but its own invocation's memory.
//!
//! Attackers are modules: some compiled from sources with `unsafe` by a builder that does not check them, some written
//! by hand. Each attack runs beside another tenant's invocations on the same worker, and ends with a typed status of the
//! attacker's; the victim's replies, counts and objects are compared after each. A crash of this process is a hole.

mod artefacts;
mod border;
mod budgets;
mod control_flow;
mod costs;
mod ends;
#[path = "../support/forged_calls.rs"]
mod forged_calls;
mod host_calls;
mod instances;
mod memory;
mod residue;
mod stacks;
mod stage;
mod time;
#[path = "../support/worker.rs"]
#[allow(unused_macros, reason = "one form alone is attacked here")]
mod worker;
