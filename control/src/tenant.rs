//! Replies about tenants: their limits, grants, sessions, counters and audit log.
//!
//! A secret is shown once, at its creation; the server keeps a hash. A token never leaves its session: sessions are
//! listed by their client's id. The server names limits and counters by text, so a client can print unknown ones.

use serde::{Deserialize, Serialize};

/// The reply to a tenant's creation and to its secret's rotation.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantCreated {
    /// The secret that opens its sessions: printable, 256 bits of randomness.
    pub secret: String,
}

/// Omits the secret, which must not reach logs.
impl core::fmt::Debug for TenantCreated {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("TenantCreated").finish_non_exhaustive()
    }
}

/// One tenant of the list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TenantEntry {
    /// Its name.
    pub name: String,
    /// Number of its tables.
    pub tables: u32,
    /// Number of its extensions.
    pub extensions: u32,
    /// Number of its open sessions.
    pub sessions: u32,
    /// Live objects in its tables.
    pub objects: u64,
    /// Bytes of memory of these objects, headers included.
    pub bytes: u64,
}

/// The limit by which the operator chooses the form of a tenant's invocations.
pub const SANDBOX: &str = "sandbox";

/// The words for the values of [`SANDBOX`]: machine code of the server's process, WebAssembly.
const SANDBOXES: [&str; 2] = ["native", "wasm"];

/// The limit by which the operator chooses where a tenant's invocations run whose clients can run them too.
pub const RUN_AT: &str = "run_at";

/// The words for the values of [`RUN_AT`].
const RUN_AT_WORDS: [&str; 3] = ["adaptive", "server", "client"];

/// Returns the words for the values of a limit, from 0; `None` if its values are amounts.
#[must_use]
pub fn limit_words(limit: &str) -> Option<&'static [&'static str]> {
    match limit {
        SANDBOX => Some(&SANDBOXES),
        RUN_AT => Some(&RUN_AT_WORDS),
        _ => None,
    }
}

/// Returns the word for a value of a limit whose values are words. A newer server may know more of them.
#[must_use]
pub fn limit_word(limit: &str, value: u64) -> Option<&'static str> {
    limit_words(limit)?.get(usize::try_from(value).ok()?).copied()
}

/// One limit of a tenant. `u64::MAX`, as `value` or `most`, means no limit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TenantLimitEntry {
    /// Its name, which ends with the unit.
    pub name: String,
    /// The current value.
    pub value: u64,
    /// The value for a tenant without an explicit setting.
    pub default: u64,
    /// The minimum setting.
    pub least: u64,
    /// The maximum setting.
    pub most: u64,
}

/// A change of one limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LimitChange<'a> {
    /// Its name.
    pub limit: &'a str,
    /// The new value; `None` for the default.
    pub value: Option<u64>,
}

/// A right that is granted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// Reading a table.
    Read,
    /// Reading and writing a table.
    Write,
    /// Invoking the functions of an extension, on tables of the caller.
    Invoke,
}

impl Right {
    /// Returns the kind of object that this right applies to.
    pub const fn subject(self) -> Subject {
        match self {
            Right::Read | Right::Write => Subject::Table,
            Right::Invoke => Subject::Extension,
        }
    }
}

/// The kind of object that is granted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// A table.
    Table,
    /// An extension in all its versions.
    Extension,
}

/// One grant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GrantEntry {
    /// The owning tenant.
    pub owner: String,
    /// Its name; the other tenant calls it `owner/name`.
    pub name: String,
    /// The tenant that may use it.
    pub to: String,
    /// The granted right.
    pub right: Right,
    /// The time of the grant, in milliseconds since the Unix epoch.
    pub granted_ms: u64,
}

/// The actor of an administrative action.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Actor {
    /// The server itself: it rolls back a failing canary.
    Server,
    /// The administrator.
    Administrator,
    /// A tenant, over one of its sessions.
    Tenant {
        /// Its name.
        name: String,
        /// The id of the session's client.
        client_id: u64,
        /// The address from which the session was opened.
        peer: String,
    },
}

/// One administrative action.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Its number; later actions have higher ones.
    pub sequence: u64,
    /// The time of its end, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The actor.
    pub actor: Actor,
    /// The action as text: the request, and the names in it.
    pub act: String,
    /// The outcome, a number of [`wire::Status`].
    pub outcome: u8,
}

/// One counter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Statistic {
    /// Its name, which ends with the unit.
    pub name: String,
    /// Its value.
    pub value: u64,
}

/// One open session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionEntry {
    /// Its client's id, by which it is revoked.
    pub client_id: u64,
    /// The tenant's name.
    pub tenant: String,
    /// The address from which it was opened.
    pub peer: String,
    /// The time of its opening, in milliseconds since the Unix epoch.
    pub opened_ms: u64,
    /// The worker that its client sends to.
    pub home_core: u16,
}
