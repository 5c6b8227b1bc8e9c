//! `splinter cluster drain`, `balance`, `stop` and `adopt`.

use std::thread::sleep;

use client::{Admin, PlanEntry, PlanProgress, Status};
use serde_json::json;

use super::super::failure::{Failure, FailureKind};
use super::super::output::Answer;
use super::LOOK_EVERY;
use super::status::{plan_text, plan_value};

/// Answers with a plan that was begun, or with its end where that is waited for.
pub fn begun(admin: &mut Admin, plan: PlanEntry, wait: bool) -> Result<Answer, Failure> {
    let mut plan = plan;
    while wait && plan.progress == PlanProgress::Running {
        sleep(LOOK_EVERY);
        let plans = admin.cluster_status()?.plans;
        let gone = || Failure::new(FailureKind::Missing, format!("plan {} is not kept any more", plan.id));
        plan = plans.iter().find(|other| other.id == plan.id).ok_or_else(gone)?.clone();
    }
    if plan.progress == PlanProgress::Stopped {
        let failure = Failure::new(FailureKind::Refused, plan_text(&plan)).known_as(Status::Conflict);
        return Err(failure.next("the logs of the servers say why; ask for the same again to go on"));
    }
    Ok(Answer::new(plan_text(&plan), plan_value(&plan)))
}

/// Stops a plan.
pub fn stop(admin: &mut Admin, plan: u32) -> Result<Answer, Failure> {
    let plan = admin.cluster_stop(plan)?;
    Ok(Answer::new(plan_text(&plan), plan_value(&plan)))
}

/// Gives to others what a server had that is gone for good.
pub fn adopt(admin: &mut Admin, server: u32, is_off: bool) -> Result<Answer, Failure> {
    if !is_off {
        let text = format!(
            "others would own what server {server} serves if it still runs and only cannot reach etcd"
        );
        let next = format!(
            "make sure that it is off, then add --it-is-off: splinter cluster adopt {server} --it-is-off"
        );
        return Err(Failure::new(FailureKind::Usage, text).next(next));
    }
    let adopted = admin.cluster_adopt(server)?;
    let left =
        if adopted.are_left { "; more of them are on the move: ask again when that is over" } else { "" };
    let text =
        format!("others own {} tablets of server {server} now, which are empty{left}", adopted.tablets);
    Ok(Answer::new(text, json!({ "server": server, "tablets": adopted.tablets, "left": adopted.are_left })))
}
