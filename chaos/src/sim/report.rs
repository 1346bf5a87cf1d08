//! What one simulated world amounts to.

use std::collections::BTreeMap;
use std::fmt;

use crate::check::{LostWrite, Overlap};

/// Something that must never happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The independent linter found something in a replica's state.
    #[error("audit: {0}")]
    Audit(String),
    /// Two attempts held one GPU, or ran one task.
    #[error(transparent)]
    Overlap(#[from] Overlap),
    /// An acknowledgement is not honoured.
    #[error(transparent)]
    Lost(#[from] LostWrite),
    /// Replicas at rest differ.
    #[error("replicas differ: {0}")]
    Divergence(String),
    /// A replica refused to start on its own disk.
    #[error("a replica did not start: {0}")]
    Start(String),
    /// Nothing is broken any more, and still something does not end.
    #[error("no progress in the quiet phase: {0}")]
    Stuck(String),
}

/// The outcome of one world; equal for equal options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// What must not have happened.
    pub violations: Vec<Violation>,
    /// Acknowledged submissions.
    pub acknowledged: u64,
    /// Jobs that ended well.
    pub succeeded: u64,
    /// Jobs that ended badly.
    pub failed: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
    /// Simulated processes started.
    pub task_starts: u64,
    /// Messages sent.
    pub messages: u64,
    /// Final revision.
    pub revision: u64,
    /// Final state hash.
    pub state_hash: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: u64 = self.faults.values().sum();
        write!(
            formatter,
            "seed {:>6}  {:>3} faults  {:>4} jobs ({} well, {} badly, {} cancelled)  {:>4} starts  \
             revision {:>5}  hash {:016x}",
            self.seed,
            faults,
            self.acknowledged,
            self.succeeded,
            self.failed,
            self.cancelled,
            self.task_starts,
            self.revision,
            self.state_hash,
        )?;
        for violation in &self.violations {
            write!(formatter, "\n    VIOLATION {violation}")?;
        }
        Ok(())
    }
}
