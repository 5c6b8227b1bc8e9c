//! Traces of a tenant's invocations: each request keeps tracing going for a while, and brings what came.

use wire::{Body, Status, Subject, TraceEntry, TracedCalls, TracedPoll, Traces};

use super::extensions::unknown;
use super::grants;
use crate::extension::trace::{CALL_KINDS, Poll, PollEnd, Recording, Wanted};
use crate::limits::{TRACED_TENANTS_MAX, TRACES_KEPT};
use crate::sched::cycles::to_ns;
use crate::server::control::{Control, Refusal, lock};
use crate::tenant::TenantId;

/// Traces of one extension, or one of its functions, behind trace `after`.
pub(super) fn read(
    control: &Control,
    tenant: TenantId,
    name: &str,
    (function, slower_than_us, after): (Option<u32>, u64, u64),
) -> Result<Vec<u8>, Refusal> {
    // As for log lines: of a granted extension a tenant sees its own invocations.
    let extension = match grants::find(control, tenant, Subject::Extension, name) {
        Some(grant) => grant.row.id,
        None => control.metadata.extension_find(tenant, name)?.ok_or_else(|| unknown(name))?.id,
    };
    let log = control.registry.log(tenant);
    let now_us = control.clock.now_us();
    let mut traced = lock(&control.traced);
    traced.retain(|(other, log)| *other == tenant || !log.traces.forget(now_us));
    if traced.iter().all(|(other, _)| *other != tenant) {
        if traced.len() >= TRACED_TENANTS_MAX {
            let text = "as many tenants trace as may at a time: try again later";
            return Err(Refusal::new(Status::LimitExceeded, text));
        }
        traced.push((tenant, log.clone()));
    }
    let wanted = Wanted { extension, function, slower_than_us };
    let leased = log.traces.lease(&control.accounts.of(tenant), wanted, now_us);
    leased.map_err(|_| {
        let text = "the tenant traces something else at present: end that, or try again in some seconds";
        Refusal::new(Status::LimitExceeded, text)
    })?;
    let (found, looked_at, missed) = log.traces.after(after, TRACES_KEPT);
    Ok(Traces { looked_at, missed, traces: found.iter().map(entry).collect() }.encode())
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
