//! Exit codes: documented in `docs/cli-json.md`, and stable.

use std::process::ExitCode;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what it was asked to.
    Ok,
    /// It could not.
    Error,
    /// The job was accepted and found no place before the time was over.
    NotPlaced,
    /// The awaited job ended badly.
    JobFailed,
    /// The awaited job was cancelled.
    JobCancelled,
    /// The replica that it ran was removed from its group, for ever: there is no sense in starting it again.
    #[cfg(feature = "server")]
    Removed,
    /// The command line or a file is not valid.
    Usage,
    /// The time was over.
    TimedOut,
    /// The command that it ran elsewhere ended with this code.
    Passed(u8),
}

impl Exit {
    /// The number that the shell sees.
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
