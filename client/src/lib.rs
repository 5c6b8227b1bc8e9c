//! The client of a Splinter server.
//!
//! [`Client`] is the blocking interface: one call, one reply. Below it, [`Session`] pipelines: the caller submits many
//! requests and polls their completions; the session packs requests into frames, retransmits lost ones, moves messages
//! too large for a datagram to the stream, and executes nothing twice. [`SessionGroup`] lets many sessions of one
//! process share a socket and its frames. `AsyncClient`, with the feature `tokio`, lets many tasks share a session.
//! [`Local`] runs an extension's function in the client over plain gets: one that is linked into the program or, with the feature
//! `modules`, one that is installed at the server (`ModuleRuntime`). [`Admin`] is the operator's interface.
//!
//! ```no_run
//! # fn main() -> Result<(), splinter_client::Error> {
//! let mut client = splinter_client::Client::connect("127.0.0.1:7700", "acme", "the secret")?;
//! let table = client.table_open("visits")?;
//! client.put(table, b"front page", b"hello")?;
//! assert_eq!(client.get(table, b"front page")?.unwrap().value, b"hello");
//! # Ok(()) }
//! ```
//!
//! In a cluster one session covers all servers: it is opened with any of them, learns which server owns which keys,
//! opens sessions with the others on demand, and follows tablets that move (`router`). Administrative requests go to
//! the first server.
//!
//! Only one thread uses a client at a time, but for `AsyncClient`. The client starts a thread only for a session that
//! sends data over its stream or uses another server. Every failure is an [`Error`] that suggests the next step.

mod admin;
mod admin_call;
mod answers;
mod archive;
#[cfg(feature = "tokio")]
mod async_client;
pub mod both_sides;
mod client;
mod config;
mod connection;
mod error;
mod function;
mod group;
mod keyed;
mod limits;
pub mod local;
mod owned_request;
mod owners;
mod pages;
mod reach;
mod reconnecting_stream;
mod router;
mod session;
mod session_state;
mod stream_worker;
mod transaction_sets;
mod transport;
mod watch;
mod write_set;

pub use admin::Admin;
pub use answers::Object;
pub use archive::{ArchivedKey, ArchivedObject, ArchivedSource, archived_keys, archived_objects, key_hash};
#[cfg(feature = "tokio")]
pub use async_client::{AsyncClient, AsyncTransaction};
pub use client::{Client, CountedTable, Enumeration, Transaction, Verification, Write, split_function_name};
pub use config::{ClientConfig, Transport};
pub use connection::server_state;
pub use control::{
    Actor, Adopted, ArchiveBegun, ArchivePiece, ArchivedExtension, ArchivedTable, AuditEntry, ByteString,
    ClusterStatus, Durability, ExtensionDescription, ExtensionEntry, ExtensionInstalled, ExtensionModule,
    ExtensionResolved, FunctionEntry, FunctionMode, GrantEntry, LimitChange, LogEntry, LogLines, Measured,
    MemberEntry, MigrationEntry, MigrationMode, MigrationPhase, MigrationProgress, MigrationWait,
    OwnedPositions, PackageFile, Placement, PlanEntry, PlanProgress, RUN_AT, Restored, Right, SANDBOX,
    ServerEntry, SessionEntry, Statistic, Subject, TableEntry, TableOptions, TableStatistics, TabletEntry,
    TenantEntry, TenantLimitEntry, TraceEntry, TracedCalls, TracedPoll, Traces, VersionDescription,
    VersionEntry, VersionState, limit_word, limit_words,
};
pub use error::{Error, NoSharedMemory};
pub use function::Function;
pub use group::SessionGroup;
pub use local::Local;
#[cfg(feature = "modules")]
pub use local::{Module, ModuleError, ModuleRuntime, PlacedFunction, RunAt};
pub use owners::Owners;
pub use pages::{Cursor, Listed, Page, PageSize};
pub use session::Session;
pub use session_state::SessionStatistics;
pub use wire::KeyRange;
pub use wire::limits::TTL_MS_MAX;
pub use wire::name_is_valid;
pub use wire::{
    Completion, CompletionError, Condition, Keys, Request, RequestDurability, ServerState, SessionLimits,
    Status, reply,
};
