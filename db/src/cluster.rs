//! The shared state of a cluster: [`metadata`], the rules, over [`records`], the storage; which servers are present;
//! and the [`migration`] of tablets between servers, over mutually authenticated streams ([`peer`]). A single server
//! keeps its records in a file in its data directory.

pub mod coordinator;
mod fields;
pub mod metadata;
pub mod migration;
pub mod peer;
pub mod presence;
pub mod records;
pub mod registration;
pub mod remote;
