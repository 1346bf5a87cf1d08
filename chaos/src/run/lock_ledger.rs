//! GPU ledger of the tasks: they lock each GPU they use and their own attempt, so that a second owner is
//! detected at once, whatever the scheduler believes.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use muster_model::ids::{AttemptEpoch, GpuUuid, JobId, TaskIndex};
use serde::Serialize;

use crate::run::RunError;

/// Names of the ledger file and of the file of conflicts.
const LEDGER_FILE: &str = "book";
const CONFLICTS_FILE: &str = "conflicts";
/// Placeholder for the GPU in records about the task itself.
const ITSELF: &str = "task";

/// A lock taken and possibly released, by the clock of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct LockRecord {
    /// The GPU; `None` for the task itself.
    pub(super) gpu: Option<GpuUuid>,
    /// The owning job.
    pub(super) job: JobId,
    /// Index of the task within its job.
    pub(super) task: TaskIndex,
    /// The attempt.
    pub(super) epoch: AttemptEpoch,
    /// Time of the lock, in microseconds.
    pub(super) taken_us: u64,
    /// Time of the release, in microseconds; `None` if the task was killed.
    pub(super) given_us: Option<u64>,
}

/// All records of the tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LockLedger {
    /// In the order in which locks were taken.
    pub(super) holdings: Vec<LockRecord>,
    /// Locks requested by one owner while another held them.
    pub(super) conflicts: Vec<String>,
}

impl LockLedger {
    /// Reads the ledger in a folder.
    ///
    /// # Errors
    /// If it cannot be read, or a line was not written by the trainer.
    pub(super) fn read(folder: &Path) -> Result<Self, RunError> {
        let text = read(&folder.join(LEDGER_FILE))?;
        let conflicts = read(&folder.join(CONFLICTS_FILE))?;
        let mut ledger = Self {
            conflicts: conflicts.lines().map(str::to_owned).collect(),
            ..Self::default()
        };
        // An attempt of a task that runs twice at once takes its lock twice: the checkers must be able to
        // detect it.
        let mut open: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for line in text.lines() {
            let odd = || RunError::Harness(format!("unexpected line in the GPU ledger: {line:?}"));
            let (what, holding) = parse(line).ok_or_else(odd)?;
            let key = (holding.gpu, holding.job, holding.task, holding.epoch);
            match what {
                "take" => {
                    open.entry(key).or_default().push(ledger.holdings.len());
                    ledger.holdings.push(holding);
                }
                "give" => {
                    let at = open.get_mut(&key).and_then(Vec::pop).ok_or_else(odd)?;
                    ledger.holdings[at].given_us = Some(holding.taken_us);
                }
                _ => return Err(odd()),
            }
        }
        ledger.holdings.sort_by_key(|it| it.taken_us);
        Ok(ledger)
    }
}

/// Reads a file; empty if it does not exist.
fn read(path: &Path) -> Result<String, RunError> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(RunError::io(format!("reading {}", path.display()))),
    }
}

fn parse(line: &str) -> Option<(&str, LockRecord)> {
    let mut words = line.split(' ');
    let mut next = || words.next();
    let (at, what, thing) = (next()?, next()?, next()?);
    let gpu = match thing {
        ITSELF => None,
        uuid => Some(uuid.parse().ok()?),
    };
    let holding = LockRecord {
        gpu,
        job: next()?.parse().ok()?,
        task: next()?.parse().ok()?,
        epoch: next()?.parse().ok()?,
        taken_us: at.parse().ok()?,
        given_us: None,
    };
    Some((what, holding))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn acquisitions_are_paired_with_releases() {
        let folder = tempfile::tempdir().unwrap();
        let gpu = GpuUuid(7);
        let text = format!(
            "10 take task 1 0 5\n10 take {gpu} 1 0 5\n20 take task 2 3 6\n30 give task 1 0 5\n30 give {gpu} 1 0 5\n"
        );
        fs::write(folder.path().join(LEDGER_FILE), text).unwrap();
        let ledger = LockLedger::read(folder.path()).unwrap();
        let given: Vec<Option<u64>> = ledger.holdings.iter().map(|it| it.given_us).collect();
        assert_eq!(given, [Some(30), Some(30), None]);
        assert_eq!(ledger.holdings[1].gpu, Some(gpu));
        assert_eq!(ledger.holdings[2].task, TaskIndex(3));
        assert_eq!(ledger.conflicts, [""; 0]);
    }

    #[test]
    fn an_attempt_that_ran_twice_at_once_is_read_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let lines =
            ["10 take", "11 take", "20 give", "21 give"].map(|it| format!("{it} task 1 0 5\n"));
        fs::write(folder.path().join(LEDGER_FILE), lines.concat()).unwrap();
        let ledger = LockLedger::read(folder.path()).unwrap();
        assert_eq!(ledger.holdings.len(), 2);
        assert!(ledger.holdings.iter().all(|it| it.given_us.is_some()));
    }

    #[test]
    fn an_odd_line_is_an_error_and_a_missing_ledger_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            LockLedger::read(folder.path()).unwrap(),
            LockLedger::default()
        );
        for odd in ["10 take", "10 give task 1 0 5", "x take task 1 0 5"] {
            fs::write(folder.path().join(LEDGER_FILE), format!("{odd}\n")).unwrap();
            assert!(LockLedger::read(folder.path()).is_err(), "{odd}");
        }
    }
}
