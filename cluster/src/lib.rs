//! The shared state of a cluster and the protocols between its servers, without sockets, threads or a server.
//!
//! ```text
//!   coordinator   plans: which tablet moves next          registration   a server's lease
//!   migration     of a tablet, at source and target       presence       which servers are gone
//!   promises      of others not to find one gone
//!   remote        reads at other servers                  peer           who belongs to the cluster
//!   replication   of a log to backups              shares    of limits that hold over the cluster
//!   metadata      the rules: tenants, tables, extensions, tablets, migrations, plans
//!   records       storage: ordered keys with revisions
//!   secret        session_proof        moment        limits
//! ```
//!
//! The state machines take messages and the time and return messages and actions; the server's threads perform those.
//! A single server keeps its records in a file in its data directory ([`records::Embedded`]); a cluster's servers share
//! theirs through another implementation of [`records::Records`].

#![deny(unsafe_op_in_unsafe_fn)]

pub mod coordinator;
mod fields;
pub mod limits;
pub mod metadata;
pub mod migration;
pub mod moment;
pub mod peer;
pub mod presence;
pub mod promises;
pub mod records;
pub mod registration;
pub mod remote;
pub mod replication;
pub mod secret;
pub mod session_proof;
pub mod shares;
#[path = "../../store/src/weakened.rs"]
mod weakened;
