//! Tells systemd that the agent is not frozen, where its unit asks to be told (`WatchdogSec=`): an agent that stands still
//! is ended and started anew, and the new one takes its tasks over.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The way to systemd.
#[derive(Debug)]
pub(crate) struct Watchdog {
    socket: UnixDatagram,
    systemd: SocketAddr,
}

impl Watchdog {
    /// The one that this process was started with; none if nobody watches it.
    pub(crate) fn of_this_process() -> Option<Self> {
        let is_for_us =
            env::var("WATCHDOG_PID").is_ok_and(|pid| pid.parse() == Ok(std::process::id()));
        env::var_os("WATCHDOG_USEC").filter(|_| is_for_us)?;
        let name = env::var_os("NOTIFY_SOCKET")?;
        Self::at(&name)
            .inspect_err(|error| {
                tracing::warn!(%error, ?name, "systemd wants to be told that the agent lives, and cannot be reached");
            })
            .ok()
    }

    fn at(name: &OsString) -> io::Result<Self> {
        let systemd = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, systemd })
    }

    /// The agent lives. One that is not heard is followed by the next.
    pub(crate) fn tell(&self) {
        if let Err(error) = self.socket.send_to_addr(b"WATCHDOG=1", &self.systemd) {
            tracing::debug!(%error, "systemd was not told that the agent lives");
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn systemd_hears_it_at_a_path_and_at_an_abstract_name() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("notify");
        let name = format!("muster-watchdog-test-{}", std::process::id());
        let hidden = SocketAddr::from_abstract_name(&name).unwrap();
        let listeners = [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (
                UnixDatagram::bind_addr(&hidden).unwrap(),
                OsString::from(format!("@{name}")),
            ),
        ];
        for (listener, name) in listeners {
            Watchdog::at(&name).unwrap().tell();
            let mut heard = [0u8; 32];
            let bytes = listener.recv(&mut heard).unwrap();
            assert_eq!(&heard[..bytes], b"WATCHDOG=1");
        }
    }
}
