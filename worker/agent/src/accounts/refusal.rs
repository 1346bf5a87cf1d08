//! Why a task may run as nobody here.

use muster_model::command::NO_ACCOUNT;

/// How the words begin where the user database did not answer: that is an illness of the host, not the site's decision.
const LOOKUP_FAILED: &str = "ACCOUNT_LOOKUP";

/// Why a task may run as nobody here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(super) reason: Reason,
    /// For people, with the way out.
    pub(super) words: String,
}

/// Kinds of reasons: the label `reason` of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// There is no such account.
    Missing,
    /// It is root's, or one of the system's own.
    Forbidden,
    /// The user database did not answer.
    Lookup,
    /// What tasks need of the data directory is not open to others than the agent.
    Closed,
    /// The leader does not say whose the task is.
    Unnamed,
}

impl Reason {
    pub(crate) const ALL: [Self; 5] = [
        Self::Missing,
        Self::Forbidden,
        Self::Lookup,
        Self::Closed,
        Self::Unnamed,
    ];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Forbidden => "forbidden",
            Self::Lookup => "lookup",
            Self::Closed => "closed",
            Self::Unnamed => "unnamed",
        }
    }
}

impl Refusal {
    pub(super) fn new(reason: Reason, words: impl Into<String>) -> Self {
        let words = words.into();
        Self { reason, words }
    }

    /// What the task's user is told.
    pub(super) fn told(&self) -> String {
        let kind = match self.reason {
            Reason::Lookup => LOOKUP_FAILED,
            Reason::Missing | Reason::Forbidden | Reason::Closed | Reason::Unnamed => NO_ACCOUNT,
        };
        format!("{kind}: {}", self.words)
    }
}
