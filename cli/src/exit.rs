//! Exit codes: documented in `docs/cli-json.md`, and stable.

use std::process::ExitCode;

/// Outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Ok,
    /// Failure.
    Error,
    /// The job was accepted but not placed before the timeout.
    NotPlaced,
    /// The awaited job failed.
    JobFailed,
    /// The awaited job was cancelled.
    JobCancelled,
    /// The replica was permanently removed from its group: a restart is pointless.
    #[cfg(feature = "server")]
    Removed,
    /// The command line or a file is not valid.
    Usage,
    /// Timeout.
    TimedOut,
    /// The remote command ended with this code.
    Passed(u8),
}

impl Exit {
    /// The exit code of the process.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Error => 1,
            Self::NotPlaced => 2,
            Self::JobFailed => 3,
            Self::JobCancelled => 4,
            #[cfg(feature = "server")]
            Self::Removed => 5,
            Self::Usage => 64,
            Self::TimedOut => 124,
            Self::Passed(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
