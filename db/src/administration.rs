//! Administrative requests over streams: the rights of each role, and the answers. In a cluster also what other servers
//! changed: [`membership`] watches for it, [`following`] applies it.
//!
//! The administrator creates and drops tenants and sees everything; a tenant administers its own objects and sees
//! nothing of others. Names are relative to the stream's tenant, so a tenant cannot even name another tenant's tables
//! or extensions. Each subject has its file.

mod altering;
mod archives;
mod audit;
pub mod copying;
mod description;
mod extensions;
mod following;
mod grants;
mod installation;
mod limits;
mod logs;
pub mod membership;
mod missing;
mod modules;
mod plans;
mod servers;
mod sessions;
pub mod shares;
mod statistics;
mod tables;
mod tablets;
mod tenants;
mod traces;

pub use following::Follower;

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::metadata::{Catalog, ExtensionRow, VersionState, VersionStateError};
use control::AdminRequest;
use wire::limits::STREAM_BODY_BYTES_MAX;
use wire::{Status, TenantId, opcode};

use crate::control_plane::archives::Content;
use crate::control_plane::{Control, Refusal};
use crate::session::Session;
use crate::sync::lock;

/// The role of a stream's peer.
#[derive(Clone, Debug)]
pub enum Role {
    /// May use a session and administer its tenant.
    Tenant(Arc<Session>),
    /// May administer tenants.
    Administrator,
}

/// A set of tenants that are compared with the metadata.
pub type TenantSet = BTreeSet<TenantId>;

/// Restores tenants, tables and extensions from the metadata, and logs their numbers: called once, before clients are
/// accepted. An extension that can no longer be built is reported and left out.
///
/// # Errors
/// If the metadata cannot be read, or workers fail.
pub fn restore(control: &Control) -> Result<(), Refusal> {
    limits::restore(control)?;
    let catalog = tables::placed(control, None)?;
    tables::follow(control, &lock(&control.changing), &catalog)?;
    let Catalog { tenants, tables, extensions, grants, .. } = catalog;
    for row in &extensions {
        extensions::restore(control, row)?;
    }
    grants::restore(control, &tenants, grants)?;
    let available = |row: &&ExtensionRow| control.registry.history(row.tenant, &row.name).is_some();
    let (tenants, tables, live) = (tenants.len(), tables.len(), extensions.iter().filter(available).count());
    let (missing, grants) = (extensions.len() - live, lock(&control.grants).len());
    tracing::info!(tenants, tables, extensions = live, missing, grants, "restored");
    Ok(())
}

/// Ends failing canaries and records it; called periodically.
pub fn watch_canaries(control: &Control) {
    for (tenant, name, failing) in control.registry.check_canaries() {
        // Another version may have become the canary meanwhile; this rule must not end that one.
        let rule = |state: &mut VersionState| match state.canary {
            Some((canary, _)) if canary == failing.version => state.roll_back(0),
            _ => Err(VersionStateError::NoCanary),
        };
        let act = format!("extension rollback {name}: {failing}");
        match extensions::change(control, tenant, &name, rule) {
            Ok(_) => {
                tracing::info!(tenant = tenant.0, act, "rolled back a failing canary");
                audit::record_own(control, tenant, act, Status::Ok);
            }
            Err(refusal) if refusal.status == Status::NotFound => {}
            Err(refusal) => {
                tracing::error!(tenant = tenant.0, act, %refusal, "cannot roll back a failing canary");
                audit::record_own(control, tenant, act, refusal.status);
            }
        }
    }
}

/// Serves one request and returns the body of the answer under `Ok`. Changes are recorded in the audit log; a client
/// that ends its own session changes nothing.
///
/// # Errors
/// The refusal to answer.
pub fn serve(control: &Control, role: &Role, code: u8, body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let answer = serve_request(control, role, code, body);
    if control.has_lost_metadata()
        && let Some(log) = &control.log
    {
        // The next start may find another durability of a table than its writers were told of.
        log.waker.fail(&control.store);
    }
    answer
}

fn serve_request(control: &Control, role: &Role, code: u8, body: &[u8]) -> Result<Vec<u8>, Refusal> {
    if code != opcode::ADMINISTER {
        return Err(Status::UnknownOpcode.into());
    }
    let request = AdminRequest::decode(body)?;
    let Some(act) = request.act().filter(|_| !is_leaving(role, &request)) else {
        let answer = serve_role(control, role, &request, body)?;
        return if answer.len() <= STREAM_BODY_BYTES_MAX {
            Ok(answer)
        } else {
            Err(Status::ReplyTooLarge.into())
        };
    };
    let author = audit::author(control, role);
    let answer = serve_role(control, role, &request, body);
    audit::record(control, author, act, &answer);
    answer
}

fn is_leaving(role: &Role, request: &AdminRequest<'_>) -> bool {
    match (role, request) {
        (Role::Tenant(session), AdminRequest::SessionRevoke { client_id }) => session.client_id == *client_id,
        _ => false,
    }
}

fn serve_role(
    control: &Control,
    role: &Role,
    request: &AdminRequest<'_>,
    body: &[u8],
) -> Result<Vec<u8>, Refusal> {
    match (request, role) {
        (AdminRequest::TenantCreate { name }, Role::Administrator) => tenants::create(control, name),
        (AdminRequest::TenantRotate { name }, Role::Administrator) => tenants::rotate(control, name),
        (AdminRequest::TenantList, Role::Administrator) => tenants::list(control),
        (AdminRequest::TenantDrop { name }, Role::Administrator) => tenants::drop(control, name),
        (AdminRequest::TenantLimits { name }, role) => limits::read(control, role, *name),
        (AdminRequest::TenantLimitsSet { name, changes, force }, Role::Administrator) => {
            limits::change(control, name, changes, *force)
        }
        (AdminRequest::Statistics { tenant }, role) => statistics::read(control, role, *tenant),
        (AdminRequest::ServerList, Role::Administrator) => servers::list(control),
        (AdminRequest::TabletList, Role::Administrator) => tablets::list(control),
        (AdminRequest::TabletSplit { table, at }, Role::Administrator) => tablets::split(control, table, *at),
        (AdminRequest::TabletMerge { table, at }, Role::Administrator) => tablets::merge(control, table, *at),
        (AdminRequest::MigrationList, Role::Administrator) => tablets::migrations(control),
        (AdminRequest::MigrationProgress, Role::Administrator) => tablets::progress(control),
        (AdminRequest::MigrationBegin { table, first, last, target, mode }, Role::Administrator) => {
            tablets::migrate(control, table, (*first, *last), *target, *mode)
        }
        (AdminRequest::MigrationAbort { id }, Role::Administrator) => tablets::abort(control, *id),
        (AdminRequest::ClusterStatus, Role::Administrator) => plans::status(control),
        (AdminRequest::ClusterDrain { server }, Role::Administrator) => plans::drain(control, *server),
        (AdminRequest::ClusterBalance, Role::Administrator) => plans::balance(control),
        (AdminRequest::ClusterStop { plan }, Role::Administrator) => plans::stop(control, *plan),
        (AdminRequest::ClusterAdopt { server, gives_up_replicas }, Role::Administrator) => {
            plans::adopt(control, *server, *gives_up_replicas)
        }
        (AdminRequest::SessionList, role) => sessions::list(control, role),
        (AdminRequest::SessionRevoke { client_id }, role) => sessions::revoke(control, role, *client_id),
        (AdminRequest::AuditRead { after, count }, role) => audit::read(control, role, *after, *count),
        (AdminRequest::ArchiveBegin { tenant }, role) => archives::begin(control, role, *tenant),
        (AdminRequest::ArchiveRead { id, keys_only, piece, check }, role) => {
            archives::read(control, role, *id, (*piece, Content::of(*keys_only, *check)))
        }
        (AdminRequest::ArchiveSource { id, extension, version, from }, role) => {
            archives::source(control, role, *id, (extension, *version, *from))
        }
        (AdminRequest::ArchiveEnd { id }, role) => archives::end(control, role, *id),
        (request, Role::Tenant(session)) => serve_tenant(control, session, request, body),
        (_, Role::Administrator) => Err(not_permitted("tables and extensions belong to tenants")),
    }
}

fn serve_tenant(
    control: &Control,
    session: &Session,
    request: &AdminRequest<'_>,
    body: &[u8],
) -> Result<Vec<u8>, Refusal> {
    let tenant = session.tenant;
    match request {
        AdminRequest::TableCreate { name, options } => {
            tables::create(control, session, name, (*options, None))
        }
        AdminRequest::TableCreateSpread { name, options, tablets } => {
            tables::create(control, session, name, (*options, Some(usize::from(*tablets))))
        }
        AdminRequest::TableAlter { name, durability } => altering::alter(control, tenant, name, *durability),
        AdminRequest::TableList => Ok(tables::list(control, tenant)),
        AdminRequest::TableDrop { name } => tables::drop(control, tenant, name),
        AdminRequest::TableStat { name } => tables::count(control, tenant, name),
        AdminRequest::TableOpen { name } => tables::open(control, tenant, name),
        AdminRequest::ExtensionInstall { name, files, placement } => {
            installation::install(control, session, (name, files, *placement), body)
        }
        AdminRequest::ArchiveRestore { table, objects } => {
            archives::restore(control, session, table, objects)
        }
        AdminRequest::ExtensionList => extensions::list(control, tenant),
        AdminRequest::ExtensionDescribe { name } => description::describe(control, tenant, name),
        AdminRequest::ExtensionRemove { name, version: 0 } => extensions::remove(control, tenant, name),
        AdminRequest::ExtensionRemove { name, version } => {
            extensions::change(control, tenant, name, |state| state.remove(*version)).map(|_| Vec::new())
        }
        AdminRequest::ExtensionRollback { name, version } => {
            extensions::change(control, tenant, name, |state| state.roll_back(*version))
        }
        AdminRequest::ExtensionPin { name, version } => {
            extensions::change(control, tenant, name, |state| state.pin(*version))
        }
        AdminRequest::ExtensionPromote { name } => {
            extensions::change(control, tenant, name, VersionState::promote)
        }
        AdminRequest::ExtensionResolve { name } => extensions::resolve(control, tenant, name),
        AdminRequest::ExtensionModule { name, version, from } => {
            modules::read(control, tenant, name, (*version, *from))
        }
        AdminRequest::GrantCreate { name, to, right } => grants::create(control, session, (name, to, *right)),
        AdminRequest::GrantList => Ok(grants::list(control, tenant)),
        AdminRequest::GrantRevoke { subject, name, to } => {
            grants::revoke(control, tenant, (*subject, name, to))
        }
        AdminRequest::ExtensionTraces { name, function, slower_than_us, after } => {
            traces::read(control, tenant, name, (*function, *slower_than_us, *after))
        }
        AdminRequest::ExtensionTracesEnd { name } => traces::end(control, tenant, name),
        AdminRequest::ExtensionLogs { name, level, after, count } => {
            logs::read(control, tenant, name, (*level, *after, *count))
        }
        _ => Err(not_permitted("this requires the administrator's secret")),
    }
}

fn not_permitted(text: &str) -> Refusal {
    Refusal::new(Status::NotPermitted, text)
}
