//! One-pass checker for I9: a call observes at least every answer that completed before it began.
//!
//! Revisions order all commands, and must be consistent with real time: a call that began after another was
//! answered has no lower revision. Reads are compared with the state at their revision where the log is
//! replayed.

use muster_model::ids::Revision;

use crate::run::checkers::{Invariant, Violation};
use crate::run::history::Operation;

pub(in crate::run) fn judge(answered: &[Operation]) -> Vec<Violation> {
    let mut begun: Vec<&Operation> = answered.iter().filter(|it| it.answer().is_some()).collect();
    begun.sort_by_key(|it| it.invoked_us);
    let mut ended = answered
        .iter()
        .filter(|it| it.answer().is_some())
        .peekable();
    let mut newest: (Revision, Option<&Operation>) = (Revision(0), None);
    let mut found = Vec::new();
    for operation in begun {
        while let Some(earlier) = ended.next_if(|it| it.completed_us < operation.invoked_us) {
            if let Some(answer) = earlier.answer().filter(|it| it.revision > newest.0) {
                newest = (answer.revision, Some(earlier));
            }
        }
        let (Some(answer), (seen, Some(earlier))) = (operation.answer(), newest) else {
            continue;
        };
        if answer.revision < seen {
            let (call, before) = (operation.call, earlier.call);
            let revision = answer.revision;
            found.push(Violation {
                invariant: Invariant::Linearizability,
                text: format!(
                    "{call:?} was answered at revision {revision}, after {before:?} was answered at {seen}"
                ),
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use muster_model::ids::JobId;

    use super::*;
    use crate::run::history::{Answer, Call, Outcome};

    fn read(invoked_us: u64, completed_us: u64, revision: u64) -> Operation {
        Operation {
            user: 0,
            call: Call::Read(JobId(1)),
            invoked_us,
            completed_us,
            via: None,
            outcome: Outcome::Done(Answer {
                job: JobId(1),
                revision: Revision(revision),
                phase: None,
            }),
        }
    }

    #[test]
    fn only_what_began_after_an_answer_must_see_it() {
        let at_once = [read(0, 10, 7), read(5, 15, 6)];
        assert_eq!(judge(&at_once), []);
        let after = [read(0, 10, 7), read(11, 15, 6)];
        assert_eq!(judge(&after).len(), 1);
        let equal = [read(0, 10, 7), read(11, 15, 7)];
        assert_eq!(judge(&equal), []);
    }
}
