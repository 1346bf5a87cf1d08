//! What can be wrong with a run.

use muster_engine::audit::Finding;

/// Something that a run shows to be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The state is not sound.
    #[error("the audit finds: {}", join(.0))]
    Audit(Vec<Finding>),
    /// The planner proposed what `apply` refuses, on the same state.
    #[error("the planner's own step is refused: {reason} ({command})")]
    PlanRefused {
        /// The step.
        command: String,
        /// Why.
        reason: String,
    },
    /// The engine panicked.
    #[error("the engine panicked: {0}")]
    Panicked(String),
    /// The planner goes on and on.
    #[error(
        "no fixed point after {rounds} rounds of planning (ROUNDS_MAX); the last step was {last}"
    )]
    NoFixedPoint {
        /// Rounds.
        rounds: u32,
        /// The last command.
        last: String,
    },
    /// A statement names what is not there.
    #[error("{0}")]
    Unknown(String),
    /// An `expect` does not hold.
    #[error("expected {expected}, found {found}")]
    Expectation {
        /// What.
        expected: String,
        /// What there is instead.
        found: String,
    },
    /// The result is not the one that stands in the script.
    #[error("the result is not the recorded one:\n{0}")]
    Recorded(String),
    /// A state rebuilt from the log or from its parts is another one.
    #[error("the state {way} is another one: {what}")]
    Restart {
        /// `replayed from the log`, `restored from its parts`.
        way: &'static str,
        /// What differs.
        what: String,
    },
    /// Another leader between two commands leads to another end.
    #[error(
        "with another leader after command {command}, {after}, the outcome differs:\n{difference}"
    )]
    Cut {
        /// Position in the log, from 1.
        command: usize,
        /// That command.
        after: String,
        /// Lines that differ.
        difference: String,
    },
}

fn join(findings: &[Finding]) -> String {
    let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

/// A failure and the line of the script at which it showed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {failure}")]
pub struct FailureAt {
    /// The statement's line.
    pub line: u32,
    /// What is wrong.
    pub failure: Failure,
}
