//! Units of a job: progress of a gang's start, and reservations.

use muster_documents::{Attempt, Claim, TaskPhase};

use crate::parse::compress;

/// Progress of a gang's start as text: `3 of 8 members are prepared`; `None` if its members begin one by one, or
/// already ran.
pub(super) fn assembly(attempt: &Attempt) -> Option<String> {
    let barrier = attempt.barrier.as_ref();
    let barrier = barrier.filter(|_| attempt.running_at.is_none())?;
    let all = attempt.tasks.len();
    let count = |phases: &[TaskPhase]| {
        let tasks = attempt.tasks.iter();
        tasks.filter(|task| phases.contains(&task.phase)).count()
    };
    Some(match barrier.released_at {
        None => {
            let prepared = count(&[TaskPhase::Prepared]);
            format!("{prepared} of {all} members are prepared")
        }
        Some(_) => {
            let begun = all - count(&[TaskPhase::Assigned, TaskPhase::Prepared]);
            format!("all members are prepared, {begun} of {all} have begun")
        }
    })
}

/// A reservation as text: `2 tasks on node[01-02], once 3 stopped attempts have ended`.
pub(super) fn claim_text(claim: &Claim) -> String {
    let hosts: Vec<&str> = claim.tasks.iter().map(|task| &*task.host).collect();
    let hosts = compress(&hosts);
    let tasks = claim.tasks.len();
    match claim.victims.len() {
        0 => format!("{tasks} tasks on {hosts}, once the running tasks there have ended"),
        victims => format!("{tasks} tasks on {hosts}, once {victims} stopped attempts have ended"),
    }
}
