//! Replicas of servers' logs at other servers.
//!
//! [`sender`] sends the log of this server to its backups; [`backup_thread`] has the streams of other servers, [`receiver`] takes
//! in what they send, [`file`] keeps it in frames of a disk, [`divided`] divides it among those who recover it, [`gathered`] finds a
//! log among the replicas that several servers have, [`promised`] says when a log is given to nobody.
//! `cluster/src/replication.rs` decides who gets what and defines the messages, `disk/src/replica.rs` the bytes on the disk.

pub mod backup_thread;
pub mod divided;
pub mod file;
pub mod gathered;
pub mod promised;
pub mod receiver;
pub mod sender;
