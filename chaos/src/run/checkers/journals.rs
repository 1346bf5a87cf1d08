//! Checker for I2 and I3 on the workers' side, from the journals that agents write ahead of each action: no
//! agent follows an older leader after a newer one, or starts an older attempt of a task after a newer one,
//! however often the agent restarted.

use std::collections::BTreeMap;
use std::path::Path;

use muster_control::agent::JournalRecord;
use muster_model::ids::{AttemptEpoch, LeadershipEpoch, TaskKey};
use muster_worker::journal;

use crate::run::RunError;
use crate::run::checkers::{Invariant, Violation};
use crate::run::replay::ReplayedLog;

/// Name of the journal in an agent's data folder.
const JOURNAL_FILE: &str = "journal";

/// Journal of the agent of one host, from its last compaction on.
#[derive(Clone, Debug)]
pub(in crate::run) struct Journal {
    /// The host.
    pub(in crate::run) host: String,
    /// In the order of writing.
    pub(in crate::run) records: Vec<JournalRecord>,
}

impl Journal {
    /// Reads the journal in the data folder of a stopped agent.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(in crate::run) fn read(host: String, data: &Path) -> Result<Self, RunError> {
        let (_, records) = journal::Journal::open(&data.join(JOURNAL_FILE))?;
        Ok(Self { host, records })
    }

    /// Number of leaders that the agent accepted.
    pub(in crate::run) fn leaders(&self) -> usize {
        let records = self.records.iter();
        records
            .filter(|it| matches!(it, JournalRecord::Leader(_)))
            .count()
    }

    /// Number of tasks that it was about to start.
    pub(in crate::run) fn starts(&self) -> usize {
        let records = self.records.iter();
        records
            .filter(|it| matches!(it, JournalRecord::Starting(_)))
            .count()
    }
}

pub(super) fn judge(journals: &[Journal], truth: &ReplayedLog) -> Vec<Violation> {
    let judged = journals.iter();
    judged.flat_map(|journal| of_one(journal, truth)).collect()
}

fn of_one(journal: &Journal, truth: &ReplayedLog) -> Vec<Violation> {
    let host = &journal.host;
    let mut leader = LeadershipEpoch(0);
    let mut newest: BTreeMap<TaskKey, AttemptEpoch> = BTreeMap::new();
    let mut found = Vec::new();
    let mut violation = |invariant, text| found.push(Violation { invariant, text });
    for record in &journal.records {
        match record {
            JournalRecord::Leader(epoch) => {
                if *epoch < leader {
                    let text = format!("{host} accepted leadership {epoch} after {leader}");
                    violation(Invariant::Fencing, text);
                }
                leader = leader.max(*epoch);
            }
            JournalRecord::Starting(assignment) => {
                let (key, epoch) = (assignment.key, assignment.epoch);
                let TaskKey { job, task } = key;
                let before = newest.insert(key, epoch);
                if let Some(before) = before.filter(|before| *before > epoch) {
                    let text = format!(
                        "{host} started attempt {epoch} of task {task} of job {job} after {before}"
                    );
                    violation(Invariant::OneAttempt, text);
                }
                let is_known = epoch.get() > truth.base.get();
                let grant = truth.grants.get(&epoch);
                if is_known && grant.is_none_or(|grant| grant.job != key.job) {
                    let text = format!(
                        "{host} started task {task} of job {job} in attempt {epoch}, which was never placed"
                    );
                    violation(Invariant::OneAttempt, text);
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leader(epoch: u64) -> JournalRecord {
        JournalRecord::Leader(LeadershipEpoch(epoch))
    }

    fn invariants(records: Vec<JournalRecord>) -> Vec<Invariant> {
        let journal = Journal {
            host: "node01".to_owned(),
            records,
        };
        let found = judge(&[journal], &ReplayedLog::default());
        found.into_iter().map(|it| it.invariant).collect()
    }

    #[test]
    fn an_older_leader_after_a_newer_one_is_noticed() {
        assert_eq!(invariants(vec![leader(3), leader(3), leader(7)]), []);
        // Compared with the newest leadership, not with the previous one.
        let back = vec![leader(7), leader(3), leader(4)];
        assert_eq!(invariants(back), [Invariant::Fencing, Invariant::Fencing]);
    }
}
