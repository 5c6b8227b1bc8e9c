//! Reads of invocations at other servers: the messages ([`message`]), and which server is asked when ([`questions`]),
//! without I/O. `db/src/remote.rs` performs them.

pub mod message;
pub mod questions;
