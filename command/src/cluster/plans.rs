//! `splinter cluster drain`, `balance`, `stop` and `adopt`.

use std::thread::sleep;

use client::{Admin, PlanEntry, PlanProgress, Status};
use serde_json::json;

use super::super::failure::{Failure, FailureKind};
use super::super::output::Answer;
use super::LOOK_EVERY;
use super::status::{plan_text, plan_value};

/// Answers with a new plan, or waits and answers with the finished plan.
pub fn begun(admin: &mut Admin, plan: PlanEntry, wait: bool) -> Result<Answer, Failure> {
    let mut plan = plan;
    while wait && plan.progress == PlanProgress::Running {
        sleep(LOOK_EVERY);
        let plans = admin.cluster_status()?.plans;
        let gone = || Failure::new(FailureKind::Missing, format!("plan {} is no longer recorded", plan.id));
        plan = plans.iter().find(|other| other.id == plan.id).ok_or_else(gone)?.clone();
    }
    if plan.progress == PlanProgress::Stopped {
        let failure = Failure::new(FailureKind::Refused, plan_text(&plan)).known_as(Status::Conflict);
        return Err(failure.next("see the servers' logs for the reason; repeat the command to continue"));
    }
    Ok(Answer::new(plan_text(&plan), plan_value(&plan)))
}

/// Stops a plan.
pub fn stop(admin: &mut Admin, plan: u32) -> Result<Answer, Failure> {
    let plan = admin.cluster_stop(plan)?;
    Ok(Answer::new(plan_text(&plan), plan_value(&plan)))
}

/// Gives the tablets of a permanently lost server to other servers.
pub fn adopt(admin: &mut Admin, server: u32, is_off: bool, loses: bool) -> Result<Answer, Failure> {
    if !is_off {
        let text = format!(
            "others would take tablets that server {server} serves if it still runs without reaching etcd"
        );
        let next = format!(
            "make sure that it is off, then add --it-is-off: splinter cluster adopt {server} --it-is-off"
        );
        return Err(Failure::new(FailureKind::Usage, text).next(next));
    }
    let adopted = if loses { admin.cluster_give_up(server) } else { admin.cluster_adopt(server) }?;
    let left = match (adopted.remaining, loses) {
        (false, _) => "",
        (true, true) => "; others are still migrating: repeat the command afterwards",
        (true, false) => {
            "; others recover or move the rest. If they cannot, since too many replicas are lost: --lose-objects"
        }
    };
    let text =
        format!("other servers now own {} tablets of server {server}, all empty{left}", adopted.tablets);
    Ok(Answer::new(text, json!({ "server": server, "tablets": adopted.tablets, "left": adopted.remaining })))
}
