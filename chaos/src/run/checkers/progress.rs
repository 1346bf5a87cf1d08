//! Checkers for L4 to L6: the cluster recovers after repair, every job ends, and users do not notice a
//! rolling restart.

use muster_engine::state::State;
use muster_proto::v1;
use muster_scheduler::view::host_to_wire;

use crate::run::checkers::{Evidence, Invariant, Violation};
use crate::run::history::{Operation, Outcome};
use crate::run::nemesis::{Episode, out_of_use};

/// Reasons for which a healthy cluster may refuse a call of the load: a job that has ended cannot be
/// cancelled, one that ended long ago is forgotten (I4 checks whether too soon), a queue or the cluster is
/// full, or the request needs all replicas on a newer build. Any other refusal is a failure.
const HONEST_REFUSALS: [&str; 6] = [
    "JOB_FINISHED",
    "UNKNOWN_JOB",
    "QUEUE_FULL",
    "CLUSTER_FULL",
    "OVER_LIMIT",
    "FEATURE_NOT_YET",
];
/// Maximum number of unfinished jobs listed by name; the others are counted.
const JOBS_TOLD: usize = 10;

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut violation = |invariant, text| found.push(Violation { invariant, text });
    for episode in &evidence.episodes {
        for odd in &episode.anomalies {
            let text = format!("{} ({}): {odd}", episode.fault.name(), episode.target);
            violation(Invariant::Progress, text);
        }
    }
    for operation in orderly(&evidence.episodes, &evidence.operations) {
        if let Some(why) = failure(&operation.outcome) {
            let call = operation.call;
            violation(
                Invariant::GracefulRestart,
                format!("{call:?} failed: {why}"),
            );
        }
    }
    if let Some(text) = unfinished_work(&evidence.log.state) {
        violation(Invariant::Progress, text);
    }
    found
}

/// Calls that overlap a graceful replacement of replicas and agents. Calls from before recovery from the
/// previous fault are excluded: they may fail because of it.
pub(super) fn orderly<'a>(episodes: &[Episode], operations: &'a [Operation]) -> Vec<&'a Operation> {
    let mut found = Vec::new();
    let mut whole_us = 0;
    for episode in episodes {
        let span = whole_us..episode.ended_us();
        let is_within =
            |it: &&Operation| span.contains(&it.invoked_us) && it.completed_us >= episode.began_us;
        if episode.fault.is_orderly() {
            found.extend(operations.iter().filter(is_within));
        }
        whole_us = episode.ended_us();
    }
    found
}

/// Reason of a call's failure; `None` if it succeeded or was legitimately refused.
fn failure(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::Unknown(why) => Some(why),
        Outcome::Refused(reason) if !HONEST_REFUSALS.contains(&reason.as_str()) => Some(reason),
        Outcome::Refused(_) | Outcome::Done(_) => None,
    }
}

/// Jobs that have not ended at the end of the run, with the blocks on their GPUs; `None` if all have ended.
fn unfinished_work(state: &State) -> Option<String> {
    let live = state.jobs.values().filter(|job| !job.phase.is_terminal());
    let live: Vec<String> = live
        .map(|job| format!("job {} ({}) is {:?}", job.id, job.spec.name, job.phase))
        .collect();
    if live.is_empty() {
        return None;
    }
    let mut text = format!("{} jobs have not ended: ", live.len());
    text += &live[..live.len().min(JOBS_TOLD)].join(", ");
    if live.len() > JOBS_TOLD {
        text += ", ...";
    }
    let hosts: Vec<v1::Host> = { state.hosts.values() }
        .map(|host| host_to_wire(state, host))
        .collect();
    let out_of_use: Vec<String> = out_of_use(&hosts).iter().map(ToString::to_string).collect();
    if !out_of_use.is_empty() {
        text += &format!("; out of placement: {}", out_of_use.join(", "));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use muster_model::ids::JobId;

    use super::*;
    use crate::cluster::Fault;
    use crate::run::history::Call;

    fn call(invoked_us: u64, completed_us: u64, outcome: Outcome) -> Operation {
        Operation {
            user: 0,
            call: Call::Read(JobId(1)),
            invoked_us,
            completed_us,
            via: None,
            outcome,
        }
    }

    #[test]
    fn a_refusal_that_is_not_the_callers_is_a_failure() {
        let refused = |reason: &str| Outcome::Refused(reason.to_owned());
        assert_eq!(failure(&refused("JOB_FINISHED")), None);
        for reason in ["Internal", "Unimplemented", "ROLE_TOO_WEAK"] {
            assert_eq!(failure(&refused(reason)), Some(reason));
        }
        let unknown = Outcome::Unknown("no answer".to_owned());
        assert_eq!(failure(&unknown), Some("no answer"));
    }

    #[test]
    fn a_call_that_the_first_stop_cuts_is_within_one_that_an_earlier_fault_delays_is_not() {
        let unknown = || Outcome::Unknown(String::new());
        let operations = [
            call(500, 900, unknown()),
            // Interrupted by the first stop.
            call(7_500, 8_500, unknown()),
            // Called before recovery from the previous fault.
            call(5_500, 8_500, unknown()),
            call(8_600, 8_700, unknown()),
            call(9_600, 9_700, unknown()),
        ];
        let rolled = Episode {
            began_us: 8_000,
            healed_us: 9_000,
            recovered_us: Some(9_500),
            ..Episode::of(Fault::RollingRestart)
        };
        let episodes = [Episode::of(Fault::SyncFailed), rolled];
        let within = orderly(&episodes, &operations);
        let invoked: Vec<u64> = within.iter().map(|it| it.invoked_us).collect();
        assert_eq!(invoked, [7_500, 8_600]);
    }
}
