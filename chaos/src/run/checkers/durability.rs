//! Checkers for I4 and I5: acknowledged jobs exist exactly once on every replica; refused ones do not
//! exist.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::ids::{JobId, RequestId};

use crate::checkers::AcknowledgedWrites;
use crate::run::checkers::{Invariant, Violation};
use crate::run::history::{Call, Operation, Outcome};
use crate::run::replay::ReplayedLog;

/// Reason of a refusal because the job does not exist.
const UNKNOWN_JOB: &str = "UNKNOWN_JOB";

pub(in crate::run) fn judge(operations: &[Operation], truth: &ReplayedLog) -> Vec<Violation> {
    let mut acknowledged = AcknowledgedWrites::default();
    for operation in operations {
        match (operation.call, operation.answer()) {
            (Call::Submit(request), answer) => {
                acknowledged.asked(request);
                if let Some(answer) = answer {
                    acknowledged.submitted(request, answer.job);
                }
            }
            (Call::Cancel(job), Some(_)) => acknowledged.cancelled(job),
            _ => {}
        }
    }
    for request in refused(operations) {
        acknowledged.refused(request);
    }
    let lost = acknowledged.judge(&truth.state);
    let contradictions = acknowledged.contradictions().iter();
    let texts = lost.iter().chain(contradictions).map(ToString::to_string);
    texts
        .chain(unseen(operations))
        .map(|text| Violation {
            invariant: Invariant::Durability,
            text,
        })
        .collect()
}

/// Submissions of which every call was refused: if one was answered or is unknown, the request took effect
/// or may still do so.
pub(in crate::run) fn refused(operations: &[Operation]) -> BTreeSet<RequestId> {
    let (mut refused, mut open) = (BTreeSet::new(), BTreeSet::new());
    for operation in operations {
        if let Call::Submit(request) = operation.call {
            match operation.outcome {
                Outcome::Refused(_) => refused.insert(request),
                Outcome::Done(_) | Outcome::Unknown(_) => open.insert(request),
            };
        }
    }
    refused.difference(&open).copied().collect()
}

/// Jobs that a read reported as missing after they had been acknowledged.
pub(in crate::run) fn unseen(operations: &[Operation]) -> Vec<String> {
    let mut known: BTreeMap<JobId, u64> = BTreeMap::new();
    for operation in operations {
        if let (Call::Submit(_), Some(answer)) = (operation.call, operation.answer()) {
            known.entry(answer.job).or_insert(operation.completed_us);
        }
    }
    let refused = operations.iter().filter_map(|operation| {
        let (Call::Read(job) | Call::Cancel(job)) = operation.call else {
            return None;
        };
        let Outcome::Refused(reason) = &operation.outcome else {
            return None;
        };
        let since = known.get(&job)?;
        (reason == UNKNOWN_JOB && *since < operation.invoked_us)
            .then(|| format!("job {job} was acknowledged, but later reported as unknown"))
    });
    refused.collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_harness::{Cluster, single};
    use muster_model::ids::Revision;

    use super::*;
    use crate::run::history::Answer;

    fn operation(call: Call, at_us: u64, outcome: Outcome) -> Operation {
        Operation {
            user: 0,
            call,
            invoked_us: at_us,
            completed_us: at_us + 1,
            via: None,
            outcome,
        }
    }

    #[test]
    fn a_job_that_is_said_not_to_exist_is_noticed_once_it_was_acknowledged() {
        let answer = Answer {
            job: JobId(3),
            revision: Revision(3),
            phase: None,
        };
        let gone = || Outcome::Refused(UNKNOWN_JOB.to_owned());
        let mut operations = vec![
            operation(Call::Read(JobId(3)), 5, gone()),
            operation(Call::Submit(RequestId(1)), 10, Outcome::Done(answer)),
        ];
        assert_eq!(unseen(&operations), [""; 0]);
        operations.push(operation(Call::Read(JobId(3)), 20, gone()));
        assert_eq!(unseen(&operations).len(), 1);
    }

    #[test]
    fn a_write_whose_calls_were_all_refused_must_have_no_effect() {
        let mut cluster = Cluster::with_hosts(1, 2);
        cluster.submit(single("kept", 1, 1));
        let (request, _) = cluster.state.requests.iter().next().unwrap();
        let truth = ReplayedLog {
            state: cluster.state,
            ..ReplayedLog::default()
        };
        let call = Call::Submit(request);
        let no = || Outcome::Refused("QUEUE_FULL".to_owned());
        let mut operations = vec![operation(call, 5, no())];
        assert_eq!(judge(&operations, &truth).len(), 1);
        // Of two concurrent calls the other one may have come first.
        operations.push(operation(call, 6, Outcome::Unknown("timed out".to_owned())));
        assert_eq!(judge(&operations, &truth), []);
    }
}
