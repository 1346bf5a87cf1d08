//! Notifications to systemd.

use muster_raft_store::Leadership;
use muster_service::systemd::Systemd;
use tokio::sync::watch;
use tokio::time::{Interval, interval};
use tokio_util::sync::CancellationToken;

/// Notifies systemd that the replica is ready, of its status after each change, and that it is alive, until
/// `stop`; then that it stops.
///
/// A replica is ready when it listens and has read its log. A known leader is not required: in a new group,
/// or one without a majority, the first replica to start would wait for the others, and systemd would kill it
/// for that.
pub(crate) async fn notify(
    systemd: Systemd,
    mut leadership: watch::Receiver<Leadership>,
    stop: CancellationToken,
) {
    let mut lives = systemd.interval().map(interval);
    systemd.notify_ready();
    let mut reported = String::new();
    loop {
        let status = status_line(&leadership.borrow_and_update());
        if status != reported {
            systemd.status(&status);
            reported = status;
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = next(&mut lives) => systemd.notify_watchdog(),
            changed = leadership.changed() => if changed.is_err() {
                break;
            },
        }
    }
    systemd.notify_stopping();
}

/// Waits for the next tick, forever if there is none.
async fn next(ticks: &mut Option<Interval>) {
    match ticks {
        Some(ticks) => drop(ticks.tick().await),
        None => std::future::pending().await,
    }
}

/// Status in one line.
fn status_line(leadership: &Leadership) -> String {
    match &leadership.leader {
        _ if leadership.stopped => "has stopped".to_owned(),
        _ if leadership.is_self => format!("leads in term {}", leadership.term),
        Some(leader) => format!("follows replica {} at {}", leader.id, leader.address),
        None => "knows no leader: the replica is isolated, or the group has no majority".to_owned(),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::time::Duration;

    use muster_raft_store::Peer;

    use super::*;

    fn received(listener: &UnixDatagram) -> Vec<String> {
        let mut bytes = [0u8; 128];
        let messages = std::iter::from_fn(|| {
            listener
                .recv(&mut bytes)
                .ok()
                .map(|count| String::from_utf8(bytes[..count].to_vec()).unwrap())
        });
        messages.collect()
    }

    #[tokio::test(start_paused = true)]
    async fn systemd_is_notified_of_readiness_status_liveness_and_stop() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let wait_max = Duration::from_secs(30);
        let systemd = Systemd::at(path.as_os_str(), Some(wait_max)).unwrap();
        let (change, leadership) = watch::channel(Leadership::default());
        let stop = CancellationToken::new();
        let notifier = tokio::spawn(notify(systemd, leadership, stop.clone()));
        tokio::time::sleep(wait_max / 2).await;
        let waits = "STATUS=knows no leader: the replica is isolated, or the group has no majority";
        assert_eq!(
            received(&listener),
            ["READY=1", waits, "WATCHDOG=1", "WATCHDOG=1"]
        );

        let leader = Some(Peer::new(2, "node2:7400"));
        change.send_replace(Leadership {
            leader: leader.clone(),
            term: 7,
            ..Leadership::default()
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(
            received(&listener),
            ["STATUS=follows replica 2 at node2:7400"]
        );

        change.send_replace(Leadership {
            leader,
            term: 8,
            is_self: true,
            is_lost: false,
            stopped: false,
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(received(&listener), ["STATUS=leads in term 8"]);

        stop.cancel();
        notifier.await.unwrap();
        assert_eq!(received(&listener), ["STOPPING=1"]);
    }
}
