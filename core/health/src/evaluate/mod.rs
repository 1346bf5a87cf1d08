//! Evaluation of readings into findings, and of findings into repetitions: state machines over integers and
//! given times.

mod bursts;
mod coalesce;
mod counter;
mod judge;
mod readings;
mod window;

pub use self::bursts::{
    Escalation, OCCURRENCE_KEPT_MS, OCCURRENCES_PER_GPU_MAX, Occurrence, XidOutcome, XidSeen, Xids,
    repeated_words,
};
pub use self::coalesce::{Coalescer, Seen};
pub use self::counter::{Counter, pcie_replay_limit_per_minute};
pub use self::judge::{Judged, judge_recovery, judge_sxid, judge_xid};
pub use self::readings::{Reading, Readings, Transition};
pub use self::window::Window;

#[cfg(test)]
mod tests;
