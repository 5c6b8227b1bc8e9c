//! What the servers of a cluster agree on: [`metadata`], the rules, over [`records`], where it is kept, and which of
//! them are there; how what they have goes from one to another ([`migration`]), over streams
//! that both ends have proved themselves on ([`peer`]). With one server that is a file in its data directory.

pub mod coordinator;
mod fields;
pub mod metadata;
pub mod migration;
pub mod peer;
pub mod presence;
pub mod records;
pub mod registration;
pub mod remote;
