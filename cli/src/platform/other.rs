//! Systems other than Unix: no process groups, and terminal modes are unchanged.

use std::future;
use std::io;

use tokio::process::{Child, Command};

/// Variable with the user's name, on Windows.
const USER_VARIABLE: &str = "USERNAME";

/// The name of the user of this process.
pub(crate) fn user_name() -> String {
    std::env::var(USER_VARIABLE).unwrap_or_else(|_| "unknown".to_owned())
}

/// Does nothing: there are no process groups.
pub(crate) fn own_group(command: &mut Command) -> &mut Command {
    command
}

/// Kills the process alone.
pub(crate) fn kill_group(child: &mut Child) -> io::Result<()> {
    child.start_kill()
}

/// Unknown.
pub(crate) fn window_size() -> Option<(u32, u32)> {
    None
}

/// Changes of the terminal's size: none are observed.
pub(crate) struct WindowChanges;

impl WindowChanges {
    /// `None`: changes cannot be observed.
    pub(crate) fn listen() -> Option<Self> {
        None
    }

    /// Never completes.
    pub(crate) async fn next(&mut self) -> bool {
        future::pending().await
    }
}

/// A terminal in raw mode.
pub(crate) struct RawTerminal;

impl RawTerminal {
    /// `None`: the mode is unchanged.
    pub(crate) fn enter() -> Option<Self> {
        None
    }
}
