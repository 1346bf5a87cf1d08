//! L4 to L6: what is repaired is whole again, every job ends, and users do not notice a rolling restart.

use muster_core::state::State;
use muster_proto::convert::host_to_wire;
use muster_proto::v1;

use super::{Evidence, Invariant, Violation};
use crate::run::history::Outcome;
use crate::run::nemesis::out_of_use;

/// Jobs that live at the end and are named; the others are counted.
const JOBS_TOLD: usize = 10;

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut violation = |invariant, text| found.push(Violation { invariant, text });
    for episode in &evidence.episodes {
        for odd in &episode.odd {
            let text = format!("{} ({}): {odd}", episode.fault.words(), episode.target);
            violation(Invariant::Progress, text);
        }
        if !episode.fault.is_orderly() {
            continue;
        }
        let within = evidence
            .operations
            .iter()
            .filter(|it| (episode.began_us..episode.ended_us()).contains(&it.invoked_us));
        for operation in within {
            if let Outcome::Unknown(why) = &operation.outcome {
                let call = operation.call;
                violation(Invariant::Orderly, format!("{call:?} failed: {why}"));
            }
        }
    }
    if let Some(text) = what_has_not_ended(&evidence.truth.state) {
        violation(Invariant::Progress, text);
    }
    found
}

/// The jobs that live where all should have ended, with what keeps their GPUs from them; none if there are none.
fn what_has_not_ended(state: &State) -> Option<String> {
    let live = state.jobs.values().filter(|job| !job.phase.is_terminal());
    let live: Vec<String> = live
        .map(|job| format!("job {} ({}) is {:?}", job.id, job.spec.name, job.phase))
        .collect();
    if live.is_empty() {
        return None;
    }
    let mut text = format!("{} jobs live at the end: ", live.len());
    text += &live[..live.len().min(JOBS_TOLD)].join(", ");
    if live.len() > JOBS_TOLD {
        text += ", ...";
    }
    let hosts: Vec<v1::Host> = { state.hosts.values() }
        .map(|host| host_to_wire(state, host))
        .collect();
    let out_of_use: Vec<String> = out_of_use(&hosts).iter().map(ToString::to_string).collect();
    if !out_of_use.is_empty() {
        text += &format!("; out of use: {}", out_of_use.join(", "));
    }
    Some(text)
}
