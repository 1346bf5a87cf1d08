//! Unix: users by number, process groups, terminals.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;

use rustix::process::{Pid, Signal, kill_process_group};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// Users of this host, one per line.
const USERS: &str = "/etc/passwd";

/// The name of the user of this process; `uid-NUMBER` without an entry in [`USERS`].
pub(crate) fn user_name() -> String {
    let uid = rustix::process::getuid().as_raw();
    fs::read_to_string(USERS)
        .ok()
        .and_then(|users| name_of(uid, &users))
        .unwrap_or_else(|| format!("uid-{uid}"))
}

/// The name of a user in a list with one user per line: the name first, the number third.
fn name_of(uid: u32, users: &str) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        let is_theirs = !name.is_empty() && number.parse::<u32>() == Ok(uid);
        is_theirs.then(|| name.to_owned())
    })
}

/// Lets a command start its own process group.
pub(crate) fn own_group(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

/// Sends SIGKILL to the process group of a command started with [`own_group`].
pub(crate) fn kill_group(child: &mut Child) -> io::Result<()> {
    match child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        Some(group) => Ok(kill_process_group(group, Signal::KILL)?),
        None => Ok(()),
    }
}

/// Columns and rows of the terminal on standard output; `None` without a terminal that has a size.
pub(crate) fn window_size() -> Option<(u32, u32)> {
    let size = tcgetwinsize(io::stdout().as_fd()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then(|| (size.ws_col.into(), size.ws_row.into()))
}

/// Changes of the terminal's size.
pub(crate) struct WindowChanges(tokio::signal::unix::Signal);

impl WindowChanges {
    /// `None` if the signal cannot be received.
    pub(crate) fn listen() -> Option<Self> {
        signal(SignalKind::window_change()).ok().map(Self)
    }

    /// Waits for the next change; false if there will be none.
    pub(crate) async fn next(&mut self) -> bool {
        self.0.recv().await.is_some()
    }
}

/// The terminal on standard input in raw mode: input goes to the remote command unprocessed. Dropping it
/// restores the mode.
pub(crate) struct RawTerminal(Termios);

impl RawTerminal {
    /// `None` if standard input is not a terminal.
    pub(crate) fn enter() -> Option<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Drain, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(io::stdin(), OptionalActions::Drain, &self.0) {
            tracing::debug!(%error, "cannot restore the terminal's mode");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn a_user_name_is_that_of_the_first_line_with_the_uid() {
        let users = "root:x:0:0:root:/root:/bin/sh\n# none\n\ntoor:x:0:0::/:\nada:x:1000:1000::/home/ada:\n";
        assert_eq!(name_of(0, users).as_deref(), Some("root"));
        assert_eq!(name_of(1000, users).as_deref(), Some("ada"));
        assert_eq!(name_of(7, users), None);
    }
}
