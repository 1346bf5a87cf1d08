//! L4 to L6: what is repaired is whole again, every job ends, and users do not notice a rolling restart.

use super::{Evidence, Invariant, Violation};
use crate::run::history::Outcome;

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
    let jobs = evidence.truth.state.jobs.values();
    for job in jobs.filter(|job| !job.phase.is_terminal()) {
        let text = format!(
            "job {} ({}) is {:?} at the end",
            job.id, job.spec.name, job.phase
        );
        violation(Invariant::Progress, text);
    }
    found
}
