//! Replicas of other servers' logs, on this server's disk.
//!
//! [`file`] keeps them in frames of a disk, [`gathered`] finds a log among those that several servers have.
//! `cluster/src/replication.rs` decides who gets what, `disk/src/replica.rs` defines the bytes.
//!
//! Not in use yet: no server has backups.

pub mod file;
pub mod gathered;
