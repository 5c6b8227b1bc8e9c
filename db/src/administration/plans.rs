//! Cluster requests of the administrator: the servers, present or not, and plans, which the coordinator executes.

use cluster::limits::GONE_AFTER_MS;
use cluster::metadata::{Goal, MetadataError, PlanRow, Snapshot, TabletError, drained};
use cluster::moment::Moment;
use control::{Adopted, ClusterStatus, MemberEntry, PlanEntry};
use wire::Status;

use super::missing::if_missing;
use crate::control_plane::{Control, Refusal};

pub(super) fn status(control: &Control) -> Result<Vec<u8>, Refusal> {
    let Some(own) = control.lease_cache.run() else {
        let (members, plans) = (Vec::new(), Vec::new());
        return Ok(control::encode(&ClusterStatus { asked: 0, coordinator: 0, members, plans }));
    };
    let Snapshot { there, plans, replicas, .. } = control.metadata.snapshot()?;
    let drained = drained(&plans);
    let replicas_of =
        |server: u32| replicas.iter().find(|row| row.server == server).map_or(0, |row| row.replicas as u32);
    let missing_ms = |server: u32| {
        let missing_for = control.lease_cache.missing_for(server)?;
        Some(missing_for.as_millis() as u64)
    };
    let members = control.metadata.members()?.into_iter().map(|row| MemberEntry {
        id: row.run.server,
        tcp: row.tcp.to_string(),
        starts: row.run.start,
        is_present: there.contains(&row.run),
        is_drained: drained.contains(&row.run),
        replicas: Some(replicas_of(row.run.server)),
        missing_ms: missing_ms(row.run.server).filter(|_| !there.contains(&row.run)),
    });
    let status = ClusterStatus {
        asked: own.server,
        coordinator: control.metadata.coordinator()?.map_or(0, |elected| elected.server),
        members: members.collect(),
        plans: plans.iter().map(entry_of).collect(),
    };
    Ok(control::encode(&status))
}

pub(super) fn drain(control: &Control, server: u32) -> Result<Vec<u8>, Refusal> {
    check_shared(control)?;
    let Snapshot { there, plans, .. } = control.metadata.snapshot()?;
    let run = there.iter().find(|run| run.server == server).copied();
    let run = run.ok_or_else(|| {
        let text = format!(
            "server {server} is not registered, and its objects are lost; `splinter cluster adopt {server}` \
             gives its tablets to other servers"
        );
        Refusal::new(Status::WrongTablets, text)
    })?;
    let drained = drained(&plans);
    if !there.iter().any(|other| *other != run && !drained.contains(other)) {
        return Err(Refusal::new(Status::WrongTablets, "no other server can take its tablets"));
    }
    begin(control, Goal::Drain(run))
}

pub(super) fn balance(control: &Control) -> Result<Vec<u8>, Refusal> {
    check_shared(control)?;
    begin(control, Goal::Balance)
}

fn begin(control: &Control, goal: Goal) -> Result<Vec<u8>, Refusal> {
    let row = control.metadata.plan_begin(goal, control.clock.wall_ms()).map_err(|error| match error {
        MetadataError::Tablets(TabletError::PlanRuns(plan)) => {
            let text =
                format!("plan {plan} is still running; wait for it, or `splinter cluster stop {plan}`");
            Refusal::new(Status::WrongTablets, text)
        }
        error => error.into(),
    })?;
    Ok(control::encode(&entry_of(&row)))
}

pub(super) fn stop(control: &Control, plan: u32) -> Result<Vec<u8>, Refusal> {
    let missing = || Refusal::new(Status::NotFound, format!("there is no plan {plan}"));
    let row = control.metadata.plan_stop(plan).map_err(if_missing(missing))?;
    Ok(control::encode(&entry_of(&row)))
}

/// Assigns the tablets of a server that is gone for good to others. Refused until this server has found it gone for a
/// while: see [`cluster::presence`]. Tablets that others recover stay theirs, unless this gives up the replicas.
pub(super) fn adopt(control: &Control, server: u32, gives_up_replicas: bool) -> Result<Vec<u8>, Refusal> {
    check_shared(control)?;
    if !control.lease_cache.is_held(Moment::now()) {
        let text = "this server is not registered at the moment: ask another server, or wait";
        return Err(Refusal::new(Status::Unavailable, text));
    }
    let there = control.lease_cache.there();
    // Before the first check nobody is known to be there, not even this server.
    if there.is_empty() {
        let text = "this server has not checked the registrations yet: repeat the command";
        return Err(Refusal::new(Status::Unavailable, text));
    }
    let is_present = there.iter().any(|run| run.server == server);
    let adopted = match is_present {
        true => Err(TabletError::IsThere(server).into()),
        false => {
            let given_up = if gives_up_replicas { control.metadata.replicas_give_up(server) } else { Ok(()) };
            given_up.and_then(|()| control.metadata.tablets_adopt(server, control.clock.wall_ms()))
        }
    };
    let (tablets, remaining) = adopted.map_err(|error| match error {
        MetadataError::Tablets(TabletError::IsThere(_)) => not_adopted(control, server),
        error => error.into(),
    })?;
    Ok(control::encode(&Adopted { tablets: u32::try_from(tablets).unwrap_or(u32::MAX), remaining }))
}

/// Returns the reason why a server's tablets are not assigned to others: it serves, or it might register again.
fn not_adopted(control: &Control, server: u32) -> Refusal {
    match control.metadata.snapshot() {
        Ok(Snapshot { there, .. }) if there.iter().any(|run| run.server == server) => {
            let text =
                format!("server {server} is registered; `splinter cluster drain {server}` moves its tablets");
            Refusal::new(Status::WrongTablets, text)
        }
        Ok(_) => {
            let seconds = GONE_AFTER_MS.div_ceil(1_000);
            let text =
                format!("server {server} has been gone for less than {seconds} s, and may register again");
            Refusal::new(Status::Unavailable, text)
        }
        Err(error) => error.into(),
    }
}

/// Refuses outside a cluster.
pub(super) fn check_shared(control: &Control) -> Result<(), Refusal> {
    if control.lease_cache.run().is_some() {
        return Ok(());
    }
    let text = "this server is not in a cluster: a cluster keeps its metadata in etcd";
    Err(Refusal::new(Status::Unavailable, text))
}

fn entry_of(row: &PlanRow) -> PlanEntry {
    let count = |is_such: &dyn Fn(Option<u32>, Option<bool>) -> bool| {
        row.moves.iter().filter(|planned| is_such(planned.migration, planned.is_done)).count() as u32
    };
    PlanEntry {
        id: row.id,
        drains: match row.goal {
            Goal::Drain(run) => run.server,
            Goal::Balance => 0,
        },
        progress: row.state,
        begun_ms: row.begun_ms,
        moves: row.moves.len() as u32,
        in_flight: count(&|migration, outcome| migration.is_some() && outcome.is_none()),
        done: count(&|_, outcome| outcome == Some(true)),
        failed: count(&|_, outcome| outcome == Some(false)),
    }
}
