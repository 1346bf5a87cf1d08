//! Evaluation of readings into findings, and of findings into repetitions: state machines over integers and
//! given times.

mod assess;
mod bursts;
mod coalesce;
mod counter;
mod readings;
mod window;

pub use self::assess::{Assessment, judge_recovery, judge_sxid, judge_xid};
pub use self::bursts::{
    Escalation, OCCURRENCE_KEPT_MS, OCCURRENCES_PER_GPU_MAX, Occurrence, XidOutcome, XidReport,
    Xids, repeated_words,
};
pub use self::coalesce::{Coalescer, LineKind};
pub use self::counter::{Counter, pcie_replay_limit_per_minute};
pub use self::readings::{Reading, Readings, Transition};
pub use self::window::Window;

#[cfg(test)]
mod tests;
