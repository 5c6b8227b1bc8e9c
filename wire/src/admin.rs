//! Administration: requests and replies that travel only over streams.
//!
//! `request` has the one enum of requests, the other files the replies by subject. Each reply is a [`crate::Body`]; a
//! request that returns nothing gets an empty body, a list request a `Vec`. The server checks which stream may send
//! which request: a tenant's stream administers its own tables, extensions and sessions; tenants need the
//! administrator's.

mod audit;
mod cluster;
mod description;
mod extension;
mod grant;
mod limit;
mod log;
mod package;
mod progress;
mod request;
mod server;
mod table;
mod tablet;
mod tenant;
mod trace;
mod version_state;

pub use audit::{Actor, AuditEntry};
pub use cluster::{Adopted, ClusterStatus, MemberEntry, PlanEntry, PlanProgress};
pub use description::{ExtensionDescription, Measured, VersionDescription};
pub use extension::{ExtensionEntry, ExtensionInstalled, ExtensionResolved, FunctionEntry, FunctionMode};
pub use grant::{GrantEntry, Right, Subject};
pub use limit::{LimitChange, TenantLimitEntry};
pub use log::{LogEntry, LogLines};
pub use package::PackageFile;
pub use progress::{MigrationAwaited, MigrationProgress};
pub use request::AdminRequest;
pub use server::{ServerEntry, SessionEntry, Statistic};
pub use table::{TableEntry, TableId, TableOptions, TableStatistics};
pub use tablet::{MigrationEntry, MigrationMode, MigrationPhase, TabletEntry};
pub use tenant::{TenantCreated, TenantEntry};
pub use trace::{TraceEntry, TracedCalls, TracedPoll, Traces};
pub use version_state::{Placement, VersionEntry, VersionState};
