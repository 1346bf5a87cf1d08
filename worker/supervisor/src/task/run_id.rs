//! Identifier of one attempt of one task on this host.

use std::fmt;
use std::str::FromStr;

use muster_model::desired::TaskAssignment;
use muster_model::ids::{AttemptEpoch, JobId, TaskIndex, TaskKey};

/// One attempt of one task; its text form (`<job>-<task>-<epoch>`) names its directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId {
    /// The task.
    pub key: TaskKey,
    /// The attempt.
    pub epoch: AttemptEpoch,
}

impl RunId {
    /// The identifier for an assignment.
    #[must_use]
    pub const fn of(assignment: &TaskAssignment) -> Self {
        Self {
            key: assignment.key,
            epoch: assignment.epoch,
        }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, epoch } = self;
        write!(formatter, "{}-{}-{epoch}", key.job, key.task)
    }
}

/// Parse error: the text does not name an attempt of a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not have the form `<job>-<task>-<epoch>`")]
pub struct InvalidRunId(String);

impl FromStr for RunId {
    type Err = InvalidRunId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut parts = text.split('-');
            let job: JobId = parts.next()?.parse().ok()?;
            let task: TaskIndex = parts.next()?.parse().ok()?;
            let epoch: AttemptEpoch = parts.next()?.parse().ok()?;
            parts.next().is_none().then_some(Self {
                key: TaskKey { job, task },
                epoch,
            })
        };
        parse().ok_or_else(|| InvalidRunId(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_attempt() {
        let id = RunId {
            key: TaskKey {
                job: JobId(12),
                task: TaskIndex(3),
            },
            epoch: AttemptEpoch(99),
        };
        assert_eq!(id.to_string(), "12-3-99");
        assert_eq!("12-3-99".parse(), Ok(id));
        for text in ["", "12-3", "12-3-99-1", "12-3-99.new", "a-b-c"] {
            assert!(text.parse::<RunId>().is_err(), "{text}");
        }
    }
}
