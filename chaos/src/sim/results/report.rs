//! Report of one simulated world.

use std::collections::BTreeMap;
use std::fmt;

use crate::checkers::{
    DeliveryError, Disagreement, EarlyStart, FalseAttribution, LostWrite, Misplaced, Overlap,
    PhantomSuccess, RaftViolation, StaleCommand, StaleOrder,
};
use crate::sim::faults::coverage::Coverage;

/// Maximum violations that a report prints; the others are counted.
const VIOLATIONS_PRINTED_MAX: usize = 8;

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The independent audit found an inconsistency in a replica's state.
    #[error("audit: {0}")]
    Audit(String),
    /// Two attempts held one GPU, ran one task or one gang, or one was started twice.
    #[error("exclusivity: {0}")]
    Overlap(#[from] Overlap),
    /// A member of a gang started before the gang was complete.
    #[error("assembly: {0}")]
    EarlyStart(#[from] EarlyStart),
    /// A worker acted on an old order.
    #[error("fencing: {0}")]
    Disobedience(#[from] StaleOrder),
    /// A proposal of a deposed leader took effect.
    #[error("fencing: {0}")]
    Stale(#[from] StaleCommand),
    /// A placement or repair that health or an admin did not allow.
    #[error("closed: {0}")]
    Misplaced(#[from] Misplaced),
    /// The state contradicts an acknowledgement.
    #[error("acknowledged: {0}")]
    Lost(#[from] LostWrite),
    /// A recorded success that never ran.
    #[error("success: {0}")]
    Phantom(#[from] PhantomSuccess),
    /// A request that must be refused was executed.
    #[error("admission: {0}")]
    Admitted(String),
    /// A failure without a culprit was attributed.
    #[error("blame: {0}")]
    Blamed(#[from] FalseAttribution),
    /// Replicas have different states at one revision.
    #[error("agreement: {0}")]
    Divergence(#[from] Disagreement),
    /// A guarantee of Raft was violated.
    #[error("raft: {0}")]
    Raft(#[from] RaftViolation),
    /// A wrong delivery to a watcher.
    #[error("watch: {0}")]
    Watch(#[from] DeliveryError),
    /// Replicas do not converge to the same revision although all faults are repaired.
    #[error("agreement: idle replicas are at revisions {0:?}")]
    Apart(Vec<u64>),
    /// The cluster did not recover although all faults are repaired.
    #[error("recovery: {0}")]
    Unrecovered(String),
    /// A replica refused to start on its own disk, or stopped by itself.
    #[error("a replica {0}")]
    Replica(String),
    /// Code of the product or of the simulation panicked.
    #[error("panic: {0}")]
    Panic(String),
    /// Something does not end although all faults are repaired.
    #[error("no progress in the quiet phase: {0}")]
    Stuck(String),
}

impl Violation {
    /// Kind of the violation, in a word: preserved when a failure is minimized.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Audit(_) => "audit",
            Self::Overlap(_) => "exclusivity",
            Self::EarlyStart(_) => "assembly",
            Self::Disobedience(_) | Self::Stale(_) => "fencing",
            Self::Misplaced(_) => "closed",
            Self::Lost(_) => "acknowledged",
            Self::Phantom(_) => "success",
            Self::Admitted(_) => "admission",
            Self::Blamed(_) => "blame",
            Self::Divergence(_) | Self::Apart(_) => "agreement",
            Self::Raft(_) => "raft",
            Self::Watch(_) => "watch",
            Self::Unrecovered(_) => "recovery",
            Self::Replica(_) => "replica",
            Self::Panic(_) => "panic",
            Self::Stuck(_) => "progress",
        }
    }
}

/// A fault or a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// Milliseconds since the start of the world.
    pub at_ms: u64,
    /// Description.
    pub what: String,
}

/// The outcome of one world; equal for equal options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Seed of the world.
    pub seed: u64,
    /// Violations of invariants.
    pub violations: Vec<Violation>,
    /// Acknowledged submissions.
    pub acknowledged: u64,
    /// Jobs that succeeded.
    pub succeeded: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
    /// Simulated processes started.
    pub task_starts: u64,
    /// Messages sent.
    pub messages: u64,
    /// Digest of time, endpoints and outcome of every message.
    pub trace: u64,
    /// States of replicas that were audited.
    pub audits: u64,
    /// Number of comparisons of two replicas' states at one revision.
    pub compared: u64,
    /// Log entries applied by at least one replica.
    pub entries: u64,
    /// Simulated duration of the world, in milliseconds.
    pub simulated_ms: u64,
    /// Simulated milliseconds until the first violation.
    pub first_violation_ms: Option<u64>,
    /// Faults that could not be executed.
    pub skipped: u64,
    /// Final revision.
    pub revision: u64,
    /// Final state hash.
    pub state_hash: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Repairs by kind.
    pub repairs: BTreeMap<&'static str, u64>,
    /// Situations reached.
    pub coverage: Coverage,
    /// All faults and repairs, in order.
    pub incidents: Vec<Incident>,
}

impl Report {
    /// A hash of the whole report: equal for equal worlds, in whatever process they ran.
    #[must_use]
    pub fn digest(&self) -> u64 {
        /// FNV-1a's offset and prime, for 64 bits.
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let text = format!("{self:?}");
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
        text.bytes().fold(OFFSET, mix)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: u64 = self.faults.values().sum();
        write!(
            formatter,
            "seed {:>6}  {:>3} faults  {:>4} jobs ({} well, {} badly, {} cancelled)  {:>4} starts  \
             revision {:>5}  hash {:016x}  trace {:016x}",
            self.seed,
            faults,
            self.acknowledged,
            self.succeeded,
            self.failed,
            self.cancelled,
            self.task_starts,
            self.revision,
            self.state_hash,
            self.trace,
        )?;
        for violation in self.violations.iter().take(VIOLATIONS_PRINTED_MAX) {
            write!(formatter, "\n    VIOLATION {violation}")?;
        }
        if let Some(more @ 1..) = self.violations.len().checked_sub(VIOLATIONS_PRINTED_MAX) {
            write!(formatter, "\n    and {more} violations more")?;
        }
        Ok(())
    }
}
