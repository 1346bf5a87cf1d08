//! Notifications to systemd (`sd_notify(3)`): ready (`Type=notify`), status, watchdog keep-alive
//! (`WatchdogSec=`) and stopping. A service that was not started by systemd sends none.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Keep-alives per watchdog timeout (`WatchdogSec=`): two may be late.
const NOTIFICATIONS_PER_TIMEOUT: u32 = 3;

/// Connection to systemd.
#[derive(Debug)]
pub struct Systemd {
    socket: UnixDatagram,
    address: SocketAddr,
    timeout: Option<Duration>,
}

impl Systemd {
    /// The systemd that started this process; none if it expects no notifications.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        let name = env::var_os("NOTIFY_SOCKET")?;
        let variable = |name| env::var(name).ok();
        let timeout = watchdog_timeout(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
        Self::at(&name, timeout)
            .inspect_err(|error| {
                tracing::warn!(%error, ?name, "systemd expects notifications, but cannot be reached");
            })
            .ok()
    }

    /// The systemd that listens at a path, or at an abstract name (`@name`), and considers a service frozen
    /// after `timeout` without a notification.
    ///
    /// # Errors
    /// The name is not a socket name, or no socket is available.
    pub fn at(name: &OsStr, timeout: Option<Duration>) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        // A notification must never block the service; a systemd that does not read misses it.
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            address,
            timeout,
        })
    }

    /// Interval at which [`notify_watchdog`](Self::notify_watchdog) must be called; none without a watchdog.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        self.timeout
            .map(|timeout| timeout / NOTIFICATIONS_PER_TIMEOUT)
    }

    /// Reports that the service is ready: units ordered after it may start.
    pub fn notify_ready(&self) {
        self.send("READY=1");
    }

    /// Sets the status line of `systemctl status`.
    pub fn status(&self, line: &str) {
        self.send(&format!("STATUS={}", line.replace('\n', " ")));
    }

    /// Sends a watchdog keep-alive.
    pub fn notify_watchdog(&self) {
        self.send("WATCHDOG=1");
    }

    /// Reports that the service is still starting, and extends the start timeout to `longest`.
    pub fn extend_start_timeout(&self, longest: Duration) {
        self.send(&format!("EXTEND_TIMEOUT_USEC={}", longest.as_micros()));
    }

    /// Reports that the service is stopping.
    pub fn notify_stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, notification: &str) {
        if let Err(error) = self
            .socket
            .send_to_addr(notification.as_bytes(), &self.address)
        {
            tracing::debug!(%error, notification, "systemd was not notified");
        }
    }
}

/// The watchdog timeout of this process, from the variables set by systemd.
fn watchdog_timeout(micros: Option<String>, pid: Option<String>) -> Option<Duration> {
    let is_for_us = pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
    let micros: u64 = micros.filter(|_| is_for_us)?.parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn systemd_is_notified_at_a_path_and_at_an_abstract_name() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("notify");
        let name = format!("muster-systemd-test-{}", std::process::id());
        let hidden = SocketAddr::from_abstract_name(&name).unwrap();
        let listeners = [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (
                UnixDatagram::bind_addr(&hidden).unwrap(),
                OsString::from(format!("@{name}")),
            ),
        ];
        for (listener, name) in listeners {
            let systemd = Systemd::at(&name, None).unwrap();
            systemd.extend_start_timeout(Duration::from_secs(30));
            systemd.notify_ready();
            systemd.status("follows\nreplica 2");
            systemd.notify_watchdog();
            systemd.notify_stopping();
            let mut buffer = [0u8; 64];
            for expected in [
                "EXTEND_TIMEOUT_USEC=30000000",
                "READY=1",
                "STATUS=follows replica 2",
                "WATCHDOG=1",
                "STOPPING=1",
            ] {
                let bytes = listener.recv(&mut buffer).unwrap();
                assert_eq!(std::str::from_utf8(&buffer[..bytes]), Ok(expected));
            }
        }
    }

    #[test]
    fn an_absent_systemd_does_not_block_the_service() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("nobody");
        let systemd = Systemd::at(path.as_os_str(), None).unwrap();
        systemd.notify_ready();
    }

    #[test]
    fn a_systemd_that_does_not_read_does_not_block_the_service() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("notify");
        let _listener = UnixDatagram::bind(&path).unwrap();
        let systemd = Systemd::at(path.as_os_str(), None).unwrap();
        // More than the kernel queues for a listener: the rest is dropped, and nothing blocks.
        for _ in 0..10_000 {
            systemd.notify_watchdog();
        }
    }

    #[test]
    fn the_watchdog_timeout_of_another_process_is_ignored() {
        let own = std::process::id().to_string();
        let given = |micros: &str, pid: Option<&str>| {
            watchdog_timeout(Some(micros.to_owned()), pid.map(str::to_owned))
        };
        assert_eq!(given("30000000", None), Some(Duration::from_secs(30)));
        assert_eq!(given("30000000", Some(&own)), Some(Duration::from_secs(30)));
        assert_eq!(given("30000000", Some("1")), None);
        assert_eq!(given("0", None), None);
        assert_eq!(given("soon", None), None);
        assert_eq!(watchdog_timeout(None, None), None);
    }

    #[test]
    fn the_watchdog_is_notified_three_times_per_timeout() {
        let with_timeout = |timeout| Systemd::at(OsStr::new("@nobody"), timeout).unwrap();
        let thirty = with_timeout(Some(Duration::from_secs(30)));
        assert_eq!(thirty.interval(), Some(Duration::from_secs(10)));
        assert_eq!(with_timeout(None).interval(), None);
    }
}
