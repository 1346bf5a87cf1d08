//! Reasons why a task may run as no account of this host.

use muster_model::command::NO_ACCOUNT;

/// Prefix of the message if the user database did not answer: a fault of the host, not a decision of the
/// site.
const LOOKUP_FAILED: &str = "ACCOUNT_LOOKUP";

/// The reason why a task may run as no account of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(super) reason: Reason,
    /// Message for users, with the way out.
    pub(super) message: String,
}

/// Kinds of reasons: the label `reason` of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// No such account exists.
    Missing,
    /// The account is root or a system account.
    Forbidden,
    /// The user database did not answer.
    Lookup,
    /// Only the agent can reach what tasks need in the data directory.
    Closed,
    /// The leader does not send the task's user.
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

    pub(crate) const fn label(self) -> &'static str {
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
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { reason, message }
    }

    /// The message for the task's user.
    pub(super) fn message(&self) -> String {
        let kind = match self.reason {
            Reason::Lookup => LOOKUP_FAILED,
            Reason::Missing | Reason::Forbidden | Reason::Closed | Reason::Unnamed => NO_ACCOUNT,
        };
        format!("{kind}: {}", self.message)
    }
}
