//! What the whole-system tests stand on: a real server as a process, and a peer that speaks by hand.
//!
//! The tests lie in `tests/tests/system`, a module per subject of one binary; what cannot run beside others is a binary
//! of its own in `tests/tests`. They start the programs that users start and talk to them over loopback, through the
//! client library where a client behaves and by [`raw`] where it does not. What clients were told is a [`history`], which
//! is checked for linearizability; what transactions saw, for [`serializability`].

pub mod cluster;
mod compiled_sdk;
pub mod effort;
pub mod elsewhere;
pub mod etcd;
pub mod failing_disk;
pub mod history;
pub mod package;
pub mod patience;
pub mod raw;
pub mod relay;
pub mod serializability;
pub mod server;
#[path = "../../db/tests/support/stopping.rs"]
pub mod stopping;
