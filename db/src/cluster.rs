//! What the servers of a cluster agree on. With one server that is a file in its data directory.

pub mod metadata;
