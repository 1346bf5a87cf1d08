//! The only way the state changes: one command at a time, in log order, the same on every replica.

use crate::ids::Revision;
use crate::rejection::Rejection;
use crate::state::Answer;

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its revision.
    pub revision: Revision,
    /// Its answer, or why it had no effect.
    pub result: Result<Answer, Rejection>,
}
