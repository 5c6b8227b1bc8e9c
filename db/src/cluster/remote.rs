//! Reads of invocations at other servers: what the servers say to each other ([`message`]), and which server is asked when
//! ([`questions`]), without I/O. `server/remote.rs` does it.

pub mod message;
pub mod questions;
