//! Checkers for I1, I2 and I6 by the tasks' GPU ledger, and for P5: counted successes have run.

use muster_model::ids::{AttemptEpoch, Revision, TaskKey};

use crate::checkers::{GpuLedger, Owner, UnitAttempt, phantom_successes};
use crate::run::checkers::{Invariant, Violation};
use crate::run::lock_ledger::{LockLedger, LockRecord};
use crate::run::replay::ReplayedLog;

/// Prefixes of conflicts of tasks and of members of gangs, as the trainer writes them.
const OF_TASK: &str = "tasks/";
const IN_ATTEMPT: &str = " in attempt ";

pub(in crate::run) fn judge(ledger: &LockLedger, truth: &ReplayedLog) -> Vec<Violation> {
    let mut found: Vec<Violation> = ledger.conflicts.iter().map(|it| of_conflict(it)).collect();
    for holding in &ledger.holdings {
        found.extend(ungranted(holding, truth));
    }
    // One after the other: the locks have shown whether they ran concurrently.
    let mut lives = GpuLedger::default();
    for holding in ledger.holdings.iter().filter(|it| it.gpu.is_none()) {
        let Some(grant) = truth.grants.get(&holding.epoch) else {
            continue;
        };
        let owner = Owner {
            key: TaskKey {
                job: holding.job,
                task: holding.task,
            },
            epoch: holding.epoch,
        };
        let gang = UnitAttempt {
            unit: grant.unit,
            number: grant.number,
        };
        lives.started(owner, gang, &[]);
        lives.ended(owner, holding.given_us.map(|_| 0));
    }
    let repeated = lives.overlaps().iter().map(ToString::to_string);
    let phantoms = phantom_successes(&truth.state, &lives).into_iter();
    // It is unknown what ran before the log begins.
    let is_known =
        |epoch: &AttemptEpoch| truth.base == Revision(0) || truth.grants.contains_key(epoch);
    let phantoms = phantoms.filter(|it| is_known(&it.epoch));
    let lived = repeated.chain(phantoms.map(|it| it.to_string()));
    found.extend(lived.map(|text| Violation {
        invariant: Invariant::OneAttempt,
        text,
    }));
    found
}

pub(in crate::run) fn of_conflict(line: &str) -> Violation {
    let invariant = match line.strip_prefix(OF_TASK) {
        None => Invariant::Exclusivity,
        Some(rest) if rest.contains(IN_ATTEMPT) => Invariant::GangAtomicity,
        Some(_) => Invariant::OneAttempt,
    };
    Violation {
        invariant,
        text: line.to_owned(),
    }
}

/// Returns the violation if a task held something that it was not granted.
fn ungranted(holding: &LockRecord, truth: &ReplayedLog) -> Option<Violation> {
    let LockRecord {
        gpu,
        job,
        task,
        epoch,
        ..
    } = holding;
    if epoch.get() <= truth.base.get() {
        return None;
    }
    let (invariant, text) = match truth.grants.get(epoch) {
        Some(grant) if grant.job != *job => (
            Invariant::OneAttempt,
            format!(
                "task {task} of job {job} ran in attempt {epoch}, which is of job {}",
                grant.job
            ),
        ),
        Some(grant) => {
            let gpu = gpu.filter(|gpu| !grant.gpus.contains(gpu))?;
            let text =
                format!("task {task} of job {job} held {gpu} in attempt {epoch} without a grant");
            (Invariant::Exclusivity, text)
        }
        None => (
            Invariant::OneAttempt,
            format!("task {task} of job {job} ran in attempt {epoch}, which was never placed"),
        ),
    };
    Some(Violation { invariant, text })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use muster_model::ids::{AttemptEpoch, GpuUuid, JobId, TaskIndex, UnitIndex};

    use super::*;
    use crate::run::replay::Grant;

    fn truth() -> ReplayedLog {
        let grant = Grant {
            job: JobId(1),
            unit: UnitIndex(0),
            number: 1,
            gpus: BTreeSet::from([GpuUuid(7)]),
        };
        ReplayedLog {
            grants: [(AttemptEpoch(5), grant)].into(),
            ..ReplayedLog::default()
        }
    }

    fn holding(gpu: Option<u128>, epoch: u64) -> LockRecord {
        LockRecord {
            gpu: gpu.map(GpuUuid),
            job: JobId(1),
            task: TaskIndex(0),
            epoch: AttemptEpoch(epoch),
            taken_us: 1,
            given_us: Some(2),
        }
    }

    fn invariants(holdings: &[LockRecord], conflicts: &[&str]) -> Vec<Invariant> {
        let ledger = LockLedger {
            holdings: holdings.to_vec(),
            conflicts: conflicts.iter().map(|it| (*it).to_owned()).collect(),
        };
        let found = judge(&ledger, &truth());
        found.into_iter().map(|it| it.invariant).collect()
    }

    #[test]
    fn locks_within_the_allocation_are_no_violation() {
        let own = [holding(None, 5), holding(Some(7), 5)];
        assert_eq!(invariants(&own, &[]), []);
    }

    #[test]
    fn locks_without_allocation_and_double_runs_are_violations() {
        assert_eq!(
            invariants(&[holding(Some(8), 5)], &[]),
            [Invariant::Exclusivity]
        );
        assert_eq!(
            invariants(&[holding(None, 6)], &[]),
            [Invariant::OneAttempt]
        );
        let twice = [holding(None, 5), holding(None, 5)];
        assert_eq!(invariants(&twice, &[]), [Invariant::OneAttempt]);
        let conflicts = [
            "GPU-7 is held",
            "tasks/1-0 is held",
            "tasks/1-1 in attempt 4 is held",
        ];
        let kinds = [
            Invariant::Exclusivity,
            Invariant::OneAttempt,
            Invariant::GangAtomicity,
        ];
        assert_eq!(invariants(&[], &conflicts), kinds);
    }
}
