//! Reasons why a victim cannot be preempted.

use std::fmt;

use muster_model::time::TimeMs;

/// Reason why a victim cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// It is being stopped already.
    Stopping,
    /// It has not run for its queue's `protected_ms`.
    Young {
        /// End of the protection.
        until: TimeMs,
    },
    /// The preemptor is opportunistic: it cannot preempt.
    PreemptorOpportunistic,
    /// It is of the same queue without a right: its priority is not lower, its allocation basis differs, or
    /// the queue has no `preempt_by_priority`.
    SameQueue,
    /// It is guaranteed by a virtual cluster of another queue.
    OtherCells,
    /// The preemptor's side of the tree would go over its guarantee.
    OverGuarantee {
        /// The queue whose guarantee does not cover the unit.
        queue: String,
    },
    /// The victim's side of the tree is not over its guarantee.
    WithinGuarantee {
        /// The queue on the victim's side.
        queue: String,
    },
}

impl fmt::Display for Protection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopping => formatter.write_str("it is being stopped already"),
            Self::Young { until } => write!(formatter, "it is protected until {until} (protected_ms)"),
            Self::PreemptorOpportunistic => {
                formatter.write_str("opportunistic work cannot preempt")
            }
            Self::SameQueue => formatter.write_str(
                "it is in the same queue, which preempts only lower priorities with the same allocation basis, \
                 and only with preempt_by_priority",
            ),
            Self::OtherCells => formatter.write_str("another virtual cluster guarantees it"),
            Self::OverGuarantee { queue } => {
                write!(formatter, "the guarantee of queue `{queue}` does not cover the unit")
            }
            Self::WithinGuarantee { queue } => {
                write!(formatter, "queue `{queue}` is not over its guarantee")
            }
        }
    }
}
