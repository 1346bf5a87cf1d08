//! End of a run, and its exit code.

use crate::checkpoint::CheckpointError;

/// An error that a new attempt may not meet.
pub(crate) const EXIT_ERROR: u8 = 1;
/// Saved; to be restarted.
pub(crate) const EXIT_CHECKPOINTED: u8 = 75;
/// A new attempt would fail in the same way.
pub(crate) const EXIT_DO_NOT_RESTART: u8 = 93;
/// Stopped by SIGTERM with nothing saved (128 + 15, as a shell reports it).
pub(crate) const EXIT_TERMINATED: u8 = 143;

/// End of a run without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All steps are done.
    Finished,
    /// Asked to stop; the state is saved.
    Checkpointed,
    /// Asked to stop; there is no folder to save the state in.
    Terminated,
    /// The stand-in job ended with its configured code.
    Exit(u8),
}

impl Outcome {
    /// The exit code for the agent.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Finished => 0,
            Self::Checkpointed => EXIT_CHECKPOINTED,
            Self::Terminated => EXIT_TERMINATED,
            Self::Exit(code) => code,
        }
    }
}

/// Whether a new attempt would get the same error: the bytes of a checkpoint do not get better.
pub(crate) fn is_hopeless(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<CheckpointError>()
        .is_some_and(|error| error.is_permanent())
}
