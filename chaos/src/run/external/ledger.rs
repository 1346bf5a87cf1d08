//! Checker of the GPU ledger of a run's tasks against the attempts in the watchers' events.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use muster_model::event::EventKind;
use muster_model::ids::{AttemptEpoch, JobId, Revision};

use crate::run::RunError;
use crate::run::checkers::{Invariant, Violation, tasks};
use crate::run::external::Tag;
use crate::run::lock_ledger::LockLedger;
use crate::run::replay::ReplayedLog;

/// Location of the GPU ledger of a run's tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LedgerFolder {
    /// The folder, unique to this run.
    pub(super) folder: PathBuf,
    /// Whether tasks have GPUs that they lock.
    pub(super) has_gpus: bool,
}

impl LedgerFolder {
    /// The folder of a run below the named one; the first task creates it.
    pub(super) fn folder(named: &Path, tag: &Tag) -> PathBuf {
        named.join(tag.name())
    }

    /// Reads the ledger.
    ///
    /// # Errors
    /// If it cannot be read, or a line was not written by the trainer.
    pub(super) fn read(&self) -> Result<LockLedger, RunError> {
        LockLedger::read(&self.folder)
    }

    /// Reason why the ledger cannot be checked, if any.
    pub(super) fn missing(&self, ledger: &LockLedger) -> Option<String> {
        let folder = self.folder.display();
        ledger.holdings.is_empty().then(|| {
            format!(
                "no task has written to {folder}, as seen from here: --gpu-ledger must name a folder on a file system \
                 that all hosts and this machine share, at the same path, in which tasks may write"
            )
        })
    }
}

/// I1, I2 and I6 by the tasks' locks, and I2 by the runs: each in a placed attempt, and once. `known`: all
/// events up to here were received.
pub(super) fn judge(ledger: &LockLedger, truth: &ReplayedLog, known: Revision) -> Vec<Violation> {
    let conflicts = ledger.conflicts.iter().map(|it| tasks::of_conflict(it));
    let mut found: Vec<Violation> = conflicts.collect();
    let placed = placed(truth);
    let mut ran = BTreeSet::new();
    for run in ledger.holdings.iter().filter(|it| it.gpu.is_none()) {
        let (job, task, epoch) = (run.job, run.task, run.epoch);
        let odd = match placed.get(&epoch) {
            Some(owner) if *owner != job => Some(format!("which is of job {owner}")),
            None if epoch.get() <= known.get() => Some("which was never placed".to_owned()),
            _ => None,
        };
        let again = (!ran.insert((job, task, epoch))).then(|| "a second time".to_owned());
        found.extend(odd.into_iter().chain(again).map(|odd| Violation {
            invariant: Invariant::OneAttempt,
            text: format!("task {task} of job {job} ran in attempt {epoch}, {odd}"),
        }));
    }
    found
}

/// Owners of the attempts in events; a replacement member of a gang has its own epoch.
fn placed(truth: &ReplayedLog) -> BTreeMap<AttemptEpoch, JobId> {
    let kinds = truth.events.values().flatten().cloned();
    // Event kinds unknown to this build are not checked here.
    let kinds = kinds.filter_map(|event| EventKind::try_from(event).ok());
    let placed = kinds.filter_map(|kind| match kind {
        EventKind::AttemptPlaced { job, epoch, .. } => Some((epoch, job)),
        EventKind::MemberSwapped { job, member, .. } => Some((member, job)),
        _ => None,
    });
    placed.collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_model::ids::{GpuUuid, TaskIndex, UnitIndex};
    use muster_proto::v1;

    use super::*;
    use crate::run::lock_ledger::LockRecord;

    /// Job 1 was placed in attempt 5; all events up to revision 9 were received.
    fn broken(runs: &[(u64, u64)]) -> Vec<Invariant> {
        let placed = EventKind::AttemptPlaced {
            job: JobId(1),
            unit: UnitIndex(0),
            epoch: AttemptEpoch(5),
            number: 1,
            hosts: Vec::new(),
            gpus: 1,
            resumes_step: None,
        };
        let truth = ReplayedLog {
            events: [(Revision(5), vec![v1::Event::from(&placed)])].into(),
            ..ReplayedLog::default()
        };
        let holdings = runs.iter().flat_map(|(job, epoch)| {
            [None, Some(GpuUuid(7))].map(|gpu| LockRecord {
                gpu,
                job: JobId(*job),
                task: TaskIndex(0),
                epoch: AttemptEpoch(*epoch),
                taken_us: 1,
                given_us: Some(2),
            })
        });
        let ledger = LockLedger {
            holdings: holdings.collect(),
            conflicts: Vec::new(),
        };
        let found = judge(&ledger, &truth, Revision(9));
        found.into_iter().map(|it| it.invariant).collect()
    }

    #[test]
    fn a_task_runs_once_and_in_an_attempt_that_was_placed() {
        let odd = Invariant::OneAttempt;
        assert_eq!(broken(&[(1, 5)]), []);
        assert_eq!(broken(&[(1, 6)]), [odd]);
        assert_eq!(broken(&[(2, 5)]), [odd]);
        assert_eq!(broken(&[(1, 5), (1, 5)]), [odd]);
        // Events so recent have not been received yet.
        assert_eq!(broken(&[(1, 10)]), []);
    }

    #[test]
    fn a_run_reads_what_its_own_tasks_wrote_and_says_if_that_is_nothing() {
        let (ours, others) = (Tag::new("ada", None), Tag::new("ada", None));
        let named = tempfile::tempdir().unwrap();
        let kept = LedgerFolder {
            folder: LedgerFolder::folder(named.path(), &ours),
            has_gpus: true,
        };
        let write = |folder: PathBuf, file: &str, text: &str| {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(file), text).unwrap();
        };
        write(named.path().to_owned(), "conflicts", "GPU-7 is held\n");
        let other = LedgerFolder::folder(named.path(), &others);
        write(other, "book", "10 take task 1 0 5\n");
        let ledger = kept.read().unwrap();
        assert_eq!(ledger, LockLedger::default());
        let missing = kept.missing(&ledger).unwrap();
        assert!(missing.contains("all hosts and this machine share"));
        write(kept.folder.clone(), "book", "10 take task 1 0 5\n");
        let ledger = kept.read().unwrap();
        assert_eq!((ledger.holdings.len(), kept.missing(&ledger)), (1, None));
    }
}
