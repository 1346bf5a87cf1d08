//! Progress notifications to systemd during a long start, so that it does not count as hung.

use std::pin::pin;
use std::time::Duration;

use muster_service::systemd::Systemd;
use tokio::time::interval;

use crate::limits::AGENT_TICK;

/// Silence after which systemd takes a start for hung.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Runs work that may take long, and notifies systemd until it is done.
pub(super) async fn with_progress<T>(
    systemd: Option<&Systemd>,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    let mut tick = interval(AGENT_TICK);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = tick.tick() => systemd.into_iter().for_each(|systemd| systemd.extend_start_timeout(SILENCE_MAX)),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn systemd_is_notified_while_the_start_takes_long() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let systemd = Systemd::at(path.as_os_str(), None).unwrap();
        let work = tokio::time::sleep(3 * AGENT_TICK + AGENT_TICK / 2);
        with_progress(Some(&systemd), work).await;
        listener.set_nonblocking(true).unwrap();
        let mut buffer = [0u8; 64];
        let notifications = std::iter::from_fn(|| listener.recv(&mut buffer).ok());
        assert_eq!(notifications.count(), 4);
    }
}
