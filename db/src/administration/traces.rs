//! Traces of a tenant's invocations: each request keeps tracing active for a while and returns new traces; the last
//! one ends it.

use control::{Subject, TraceEntry, TracedCalls, TracedPoll, Traces};
use guest::cycles::to_ns;
use wire::{Status, TenantId};

use super::grants;
use super::missing::unknown_extension;
use crate::control_plane::{Control, Refusal};
use crate::extension::registry::VersionHistory;
use crate::extension::trace::{CALL_KINDS, Poll, PollEnd, Recording, TraceFilter};
use crate::limits::{TRACED_TENANTS_MAX, TRACES_KEPT};
use crate::sync::lock;

/// Returns traces of one extension, or one of its functions, after trace `after`.
pub(super) fn read(
    control: &Control,
    tenant: TenantId,
    name: &str,
    (function, slower_than_us, after): (Option<u32>, u64, u64),
) -> Result<Vec<u8>, Refusal> {
    let (extension, history) = extension(control, tenant, name)?;
    // Versions that are not current are invoked by number.
    let has =
        |hash: u32| history.versions.values().any(|one| one.functions.iter().any(|has| has.hash() == hash));
    if function.is_some_and(|hash| !has(hash)) {
        let text = format!("no version of the extension `{name}` has this function");
        return Err(Refusal::new(Status::UnknownFunction, text));
    }
    let log = control.registry.log(tenant);
    let now_us = control.clock.now_us();
    let mut traced = lock(&control.traced);
    traced.retain(|(other, log)| *other == tenant || !log.traces.forget(now_us));
    if traced.iter().all(|(other, _)| *other != tenant) {
        if traced.len() >= TRACED_TENANTS_MAX {
            let text = format!("{TRACED_TENANTS_MAX} tenants are already tracing: try again later");
            return Err(Refusal::new(Status::LimitExceeded, text));
        }
        traced.push((tenant, log.clone()));
    }
    let wanted = TraceFilter { extension, function, slower_than_us };
    let leased = log.traces.lease(&control.accounts.of(tenant), wanted, now_us);
    leased.map_err(|_| {
        let text = "the tenant is already tracing something else: end that, or try again in a few seconds";
        Refusal::new(Status::LimitExceeded, text)
    })?;
    let (found, looked_at, missed) = log.traces.after(after, TRACES_KEPT);
    Ok(control::encode(&Traces { looked_at, missed, traces: found.iter().map(entry).collect() }))
}

/// Ends the tracing of an extension, if the tenant traces it.
pub(super) fn end(control: &Control, tenant: TenantId, name: &str) -> Result<Vec<u8>, Refusal> {
    let (extension, _) = extension(control, tenant, name)?;
    let now_us = control.clock.now_us();
    lock(&control.traced).retain(|(other, log)| {
        if *other == tenant {
            log.traces.end(&control.accounts.of(tenant), extension);
        }
        *other != tenant || !log.traces.forget(now_us)
    });
    Ok(Vec::new())
}

/// Returns the number under which a tenant invokes an extension, and its versions. As with log lines, a tenant with a
/// grant sees its own invocations.
fn extension(control: &Control, tenant: TenantId, name: &str) -> Result<(u32, VersionHistory), Refusal> {
    let (id, history) = match grants::find(control, tenant, Subject::Extension, name) {
        Some(grant) => (grant.row.id, control.registry.history(grant.row.owner, &grant.row.name)),
        None => {
            let row =
                control.metadata.extension_find(tenant, name)?.ok_or_else(|| unknown_extension(name))?;
            (row.id, control.registry.history(tenant, name))
        }
    };
    Ok((id, history.ok_or_else(|| unknown_extension(name))?))
}

fn entry(recording: &Recording) -> TraceEntry {
    let name = &recording.function;
    let name = &name[..name.iter().position(|byte| *byte == 0).unwrap_or(name.len())];
    TraceEntry {
        at_ms: recording.at_ms,
        version: recording.version,
        function: String::from_utf8_lossy(name).into_owned(),
        status: recording.status as u8,
        ns: to_ns(recording.cycles),
        reply_ns: to_ns(recording.reply_cycles),
        polls_made: recording.polls_made,
        polls: recording.polls().iter().map(poll).collect(),
    }
}

fn poll(poll: &Poll) -> TracedPoll {
    let calls = CALL_KINDS.iter().zip(poll.calls).filter(|(_, calls)| calls.count > 0);
    TracedPoll {
        at_ns: to_ns(poll.at),
        ns: to_ns(poll.cycles),
        end: match poll.end {
            PollEnd::Ended => 0,
            PollEnd::Yielded => 1,
            PollEnd::Parked => 2,
            PollEnd::Conflicted => 3,
        },
        commit_ns: to_ns(poll.commit_cycles),
        calls: calls
            .map(|(kind, calls)| TracedCalls {
                kind: (*kind).to_owned(),
                count: calls.count,
                ns: to_ns(calls.cycles),
            })
            .collect(),
    }
}
