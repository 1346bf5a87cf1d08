//! Failures of a run.

use muster_engine::audit::Finding;

/// A failure shown by a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The state fails its audit.
    #[error("the audit finds: {}", join(.0))]
    Audit(Vec<Finding>),
    /// The planner proposed what `apply` refuses, on the same state.
    #[error("the planner's own step is refused: {reason} ({command})")]
    PlanRefused {
        /// The refused step.
        command: String,
        /// Reason for the refusal.
        reason: String,
    },
    /// The engine panicked.
    #[error("the engine panicked: {0}")]
    Panicked(String),
    /// The planner does not reach a fixed point.
    #[error(
        "no fixed point after {rounds} rounds of planning (ROUNDS_MAX); the last step was {last}"
    )]
    NoFixedPoint {
        /// Number of rounds.
        rounds: u32,
        /// The last command.
        last: String,
    },
    /// A statement names something that does not exist.
    #[error("{0}")]
    Unknown(String),
    /// An `expect` does not hold.
    #[error("expected {expected}, found {found}")]
    Expectation {
        /// The expectation.
        expected: String,
        /// The actual value.
        found: String,
    },
    /// The result differs from the one recorded in the script.
    #[error("the result differs from the recorded one:\n{0}")]
    Recorded(String),
    /// A state rebuilt from the log or from its parts differs.
    #[error("the state {way} differs: {what}")]
    Restart {
        /// `replayed from the log`, `restored from its parts`.
        way: &'static str,
        /// The difference.
        what: String,
    },
    /// A leader change between two commands leads to another outcome.
    #[error(
        "with another leader after command {command}, {after}, the outcome differs:\n{difference}"
    )]
    Cut {
        /// Position in the log, from 1.
        command: usize,
        /// The command.
        after: String,
        /// Lines that differ.
        difference: String,
    },
}

fn join(findings: &[Finding]) -> String {
    let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

/// A failure and the script line at which it occurred.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {failure}")]
pub struct FailureAt {
    /// The statement's line.
    pub line: u32,
    /// The failure.
    pub failure: Failure,
}
