//! Checker for L3: a leader that reaches no other replica acknowledges nothing to clients that still reach
//! it, and reports its state.

use crate::run::checkers::{Invariant, Violation};
use crate::run::history::{Call, Operation};
use crate::run::nemesis::{Episode, IsolatedLeader};
use crate::run::options::PINNED_CLIENT;

pub(super) fn judge(episodes: &[Episode], operations: &[Operation]) -> Vec<Violation> {
    let severed = episodes.iter().filter_map(|it| it.severed.as_ref());
    let reached = severed.clone().filter(|it| it.is_reached);
    let unsaid = reached.flat_map(|severed| unsaid(severed, operations));
    let answered = severed.flat_map(|severed| {
        let within = operations.iter().filter(|call| severed.holds(call));
        let by_it = within.filter(|call| call.via.as_ref() == Some(&severed.address));
        by_it.filter_map(move |it| Some((severed, it, it.answer()?)))
    });
    let found = answered.map(|(severed, operation, answer)| Violation {
        invariant: Invariant::IsolatedLeader,
        text: format!(
            "{:?} was answered at revision {} by {}, which reached no other replica",
            operation.call, answer.revision, severed.address
        ),
    });
    found.chain(unsaid).collect()
}

/// Kinds of calls that got no response from that leader in most cases. A few unanswered calls are normal on
/// a busy machine.
fn unsaid(severed: &IsolatedLeader, operations: &[Operation]) -> Vec<Violation> {
    let within = operations.iter().filter(|call| severed.holds(call));
    let asked = within.filter(|call| call.user == PINNED_CLIENT);
    let (reads, writes): (Vec<_>, Vec<_>) =
        asked.partition(|call| matches!(call.call, Call::Read(_)));
    let kinds = [("reads", reads), ("writes", writes)];
    let found = kinds.into_iter().filter_map(|(kind, asked)| {
        let unsaid = asked.iter().filter(|call| call.via.is_none()).count();
        (unsaid > asked.len() / 2).then(|| Violation {
            invariant: Invariant::IsolatedLeader,
            text: format!(
                "{} reached no other replica, and did not respond to {unsaid} of {} {kind}",
                severed.address,
                asked.len()
            ),
        })
    });
    found.collect()
}

/// Number of calls that such a leader received or answered.
pub(super) fn judged(episodes: &[Episode], operations: &[Operation]) -> usize {
    let severed = episodes.iter().filter_map(|it| it.severed.as_ref());
    let asked = severed.map(|severed| {
        let within = operations.iter().filter(|call| severed.holds(call));
        let is_asked = |call: &&Operation| {
            call.user == PINNED_CLIENT || call.via.as_ref() == Some(&severed.address)
        };
        within.filter(is_asked).count()
    });
    asked.sum()
}

impl IsolatedLeader {
    /// Whether a call began and ended while the leader was isolated.
    fn holds(&self, call: &Operation) -> bool {
        call.invoked_us >= self.from_us && call.completed_us <= self.until_us
    }
}

#[cfg(test)]
mod tests {
    use muster_model::ids::{JobId, RequestId, Revision};

    use super::*;
    use crate::cluster::Fault;
    use crate::run::history::{Answer, Outcome};

    fn call(via: &str, invoked_us: u64, completed_us: u64, outcome: Outcome) -> Operation {
        Operation {
            user: 0,
            call: Call::Read(JobId(1)),
            invoked_us,
            completed_us,
            via: Some(via.to_owned()),
            outcome,
        }
    }

    #[test]
    fn answers_of_an_isolated_leader_and_missing_responses_are_violations() {
        let episodes = [Episode {
            severed: Some(IsolatedLeader {
                address: "a:1".to_owned(),
                from_us: 1_000,
                until_us: 5_000,
                is_reached: true,
            }),
            ..Episode::of(Fault::LeaderIsolated)
        }];
        let done = || {
            Outcome::Done(Answer {
                job: JobId(1),
                revision: Revision(7),
                phase: None,
            })
        };
        let well = [
            // Before the isolation, by another replica, refused, and after reconnection.
            call("a:1", 900, 1_200, done()),
            call("b:1", 1_100, 1_200, done()),
            call("a:1", 1_100, 1_200, Outcome::Refused(String::new())),
            call("a:1", 4_900, 5_100, done()),
        ];
        assert_eq!(judge(&episodes, &well), []);
        assert_eq!(judged(&episodes, &well), 1);
        let unknown = || Outcome::Unknown(String::new());
        let responded = Operation {
            user: PINNED_CLIENT,
            ..call("a:1", 1_200, 1_300, unknown())
        };
        let silent = Operation {
            via: None,
            ..responded.clone()
        };
        let one_in_two = [silent.clone(), responded.clone()];
        assert_eq!(judge(&episodes, &one_in_two), []);
        assert_eq!(judged(&episodes, &one_in_two), 2);
        let [found] = &judge(&episodes, std::slice::from_ref(&silent))[..] else {
            panic!("the missing response is not reported");
        };
        let expected = "a:1 reached no other replica, and did not respond to 1 of 1 reads";
        assert_eq!(found.text, expected);
        let nobody_there = [Episode {
            severed: episodes[0].severed.clone().map(|severed| IsolatedLeader {
                is_reached: false,
                ..severed
            }),
            ..Episode::of(Fault::LeaderIsolated)
        }];
        assert_eq!(judge(&nobody_there, std::slice::from_ref(&silent)), []);
        // Reads are answered, writes are not.
        let write = |operation: &Operation| Operation {
            call: Call::Submit(RequestId(1)),
            ..operation.clone()
        };
        let [found] = &judge(&episodes, &[responded, write(&silent)])[..] else {
            panic!("the missing response to a write is not reported");
        };
        assert!(found.text.ends_with("1 of 1 writes"), "{}", found.text);
        let wrong = [call("a:1", 1_100, 1_200, done())];
        let found = judge(&episodes, &wrong);
        assert_eq!(found.len(), 1);
        assert_eq!(
            found.first().map(|it| it.invariant),
            Some(Invariant::IsolatedLeader)
        );
        assert_eq!(judge(&[Episode::of(Fault::LeaderIsolated)], &wrong), []);
    }
}
