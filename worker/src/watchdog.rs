//! Tells systemd that the agent is not frozen, where its unit asks to be told (`WatchdogSec=`): an agent that stands still
//! is ended and started anew, and the new one takes its tasks over.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::pin::pin;

use tokio::time::interval;

use crate::limits::AGENT_TICK;

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

/// Does something that may take long, and tells meanwhile that the agent lives.
pub(crate) async fn telling<T>(watchdog: Option<&Watchdog>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let mut tick = interval(AGENT_TICK);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = tick.tick() => watchdog.into_iter().for_each(Watchdog::tell),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn systemd_hears_it_while_something_takes_long() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let watchdog = Watchdog::at(&path.into_os_string()).unwrap();
        let work = tokio::time::sleep(3 * AGENT_TICK + AGENT_TICK / 2);
        telling(Some(&watchdog), work).await;
        listener.set_nonblocking(true).unwrap();
        let mut heard = [0u8; 32];
        let told = std::iter::from_fn(|| listener.recv(&mut heard).ok());
        assert_eq!(told.count(), 4);
    }

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
