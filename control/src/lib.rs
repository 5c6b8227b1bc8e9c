//! Administration by schema: the requests and replies of the control plane.
//!
//! A message is MessagePack of its type: a struct is a map from the names of its fields, an enum the name of its variant
//! or a map from that name to the fields. A receiver skips fields that it does not know and takes `nil` for an optional
//! field that is absent, so two versions can talk as long as a field keeps its name and meaning; `tests/messages/golden.txt`
//! holds the bytes. Data requests and openings have bytes of their own in [`wire`].
//!
//! [`AdminRequest`] is the one enum of requests; the other files have the replies by subject. A request that returns
//! nothing gets an empty body, which decodes as `()`; a list request gets a `Vec`. The server checks which stream may
//! send which request. Decoding never panics: bytes from outside become values, or a [`Status`] with the reason.

#![forbid(unsafe_code)]

mod cluster;
mod extension;
mod request;
mod table;
mod tenant;

pub use cluster::{
    Adopted, ClusterStatus, MemberEntry, MigrationAwaited, MigrationEntry, MigrationMode, MigrationPhase,
    MigrationProgress, PlanEntry, PlanProgress, ServerEntry, TabletEntry,
};
pub use extension::{
    ExtensionDescription, ExtensionEntry, ExtensionInstalled, ExtensionResolved, FunctionEntry, FunctionMode,
    LogEntry, LogLines, Measured, PackageFile, Placement, TraceEntry, TracedCalls, TracedPoll, Traces,
    VersionDescription, VersionEntry, VersionState,
};
pub use request::AdminRequest;
pub use serde::de::DeserializeOwned;
pub use table::{TableEntry, TableId, TableOptions, TableStatistics};
pub use tenant::{
    Actor, AuditEntry, GrantEntry, LimitChange, Right, SessionEntry, Statistic, Subject, TenantCreated,
    TenantEntry, TenantLimitEntry,
};

use rmp_serde::Deserializer;
use rmp_serde::decode::Error;
use serde::{Deserialize, Serialize};
use wire::Status;

/// Maximum nesting of a message: no message of ours is deeper, and skipping an unknown field stays shallow.
const DEPTH_MAX: usize = 16;

/// The value of an empty body.
const NIL: &[u8] = &[0xc0];

/// Returns the bytes of a message.
///
/// # Panics
/// Never for the types of this crate: their maps and lists know their lengths.
pub fn encode<T: Serialize + ?Sized>(message: &T) -> Vec<u8> {
    rmp_serde::to_vec_named(message).expect("a message has a length and goes to memory")
}

/// Decodes a message, which may borrow `body`. Ignores bytes behind it.
///
/// # Errors
/// [`Status::UnknownOpcode`] for a variant that this version does not know; [`Status::Malformed`].
pub fn decode<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Status> {
    let body = if body.is_empty() { NIL } else { body };
    let mut deserializer = Deserializer::from_read_ref(body);
    deserializer.set_max_depth(DEPTH_MAX);
    T::deserialize(&mut deserializer).map_err(|error| status_of(&error))
}

/// The deserializer tells an unknown variant only by its text; a test holds it.
fn status_of(error: &Error) -> Status {
    match error {
        Error::Syntax(text) if text.starts_with("unknown variant") => Status::UnknownOpcode,
        _ => Status::Malformed,
    }
}
