//! Administrative requests and replies, encoded by schema.
//!
//! Messages are MessagePack: a struct is a map from field names to values, an enum the name of its variant or a map
//! from that name to the variant's fields. A receiver skips unknown fields and reads an absent optional field as
//! `None`, so two versions can talk as long as each field keeps its name and meaning. `tests/messages/golden.txt` holds
//! the bytes of one message of each kind. Data requests and openings have their own encoding in [`wire`].
//!
//! [`AdminRequest`] is the enum of all requests; `act.rs` tells which of them change something, and the other files
//! define the replies by subject. A request that returns nothing gets an empty body, which decodes as `()`; a list
//! request gets a `Vec`. The server checks which stream may send which request. Decoding never panics: it returns a
//! value, or a [`Status`] with the reason.

#![forbid(unsafe_code)]

mod act;
mod archive;
mod byte_string;
mod cluster;
mod extension;
mod request;
mod table;
mod tenant;

pub use archive::{
    ArchiveBegun, ArchivePiece, ArchiveSource, ArchivedExtension, ArchivedTable, OwnedPositions, Restored,
};
pub use byte_string::ByteString;
pub use cluster::{
    Adopted, ClusterStatus, MemberEntry, MigrationEntry, MigrationMode, MigrationPhase, MigrationProgress,
    MigrationWait, PlanEntry, PlanProgress, ServerEntry, TabletEntry,
};
pub use extension::{
    ExtensionDescription, ExtensionEntry, ExtensionInstalled, ExtensionModule, ExtensionResolved,
    FunctionEntry, FunctionMode, LogEntry, LogLines, Measured, PackageFile, Placement, TraceEntry,
    TracedCalls, TracedPoll, Traces, VersionDescription, VersionEntry, VersionState,
};
pub use request::AdminRequest;
pub use serde::de::DeserializeOwned;
pub use table::{Durability, TableEntry, TableId, TableOptions, TableStatistics};
pub use tenant::{
    Actor, AuditEntry, GrantEntry, LimitChange, RUN_AT, Right, SANDBOX, SessionEntry, Statistic, Subject,
    TenantCreated, TenantEntry, TenantLimitEntry, limit_word, limit_words,
};

use rmp_serde::Deserializer;
use rmp_serde::decode::Error;
use serde::{Deserialize, Serialize};
use wire::Status;

/// Maximum nesting of a message. Every type of this crate is shallower; skipping an unknown field stops there, too.
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

/// Decodes a message, which may borrow from `body`; ignores trailing bytes.
///
/// # Errors
/// [`Status::UnknownOpcode`] for a variant that this version does not know; [`Status::Malformed`].
pub fn decode<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Status> {
    let body = if body.is_empty() { NIL } else { body };
    let mut deserializer = Deserializer::from_read_ref(body);
    deserializer.set_max_depth(DEPTH_MAX);
    T::deserialize(&mut deserializer).map_err(|error| status_of(&error))
}

/// Returns the status of a decoding error. Only its text shows an unknown variant; a test checks the text.
fn status_of(error: &Error) -> Status {
    match error {
        Error::Syntax(text) if text.starts_with("unknown variant") => Status::UnknownOpcode,
        _ => Status::Malformed,
    }
}
