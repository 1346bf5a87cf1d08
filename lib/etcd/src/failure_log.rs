//! Rate-limited log messages about a failing etcd: at once, and then rarely.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::EtcdError;
use crate::telemetry;

/// Interval at which a persistent failure is logged again.
const AGAIN_EVERY: Duration = Duration::from_secs(600);

/// A persistent failure.
#[derive(Debug)]
struct Failing {
    since: Instant,
    kind: &'static str,
    logged_at: Instant,
}

/// Logs failure and recovery of etcd; one for each operation performed with etcd.
#[derive(Debug)]
pub(crate) struct FailureLog {
    /// The failing operation, for log messages.
    what: &'static str,
    failing: Option<Failing>,
}

impl FailureLog {
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            failing: None,
        }
    }

    /// Records a failure; returns true if it was logged.
    pub(crate) fn record_failure(&mut self, error: &EtcdError) -> bool {
        telemetry::error(error.kind());
        let now = Instant::now();
        let is_new = |failing: &Failing| {
            failing.kind != error.kind() || failing.logged_at + AGAIN_EVERY <= now
        };
        let is_due = self.failing.as_ref().is_none_or(is_new);
        let since = self.failing.as_ref().map_or(now, |failing| failing.since);
        if is_due {
            let seconds = (now - since).as_secs();
            tracing::warn!(
                %error,
                what = self.what,
                failing_seconds = seconds,
                "etcd does not work; running work does not depend on it, and calls are retried"
            );
            self.failing = Some(Failing {
                since,
                kind: error.kind(),
                logged_at: now,
            });
        }
        is_due
    }

    /// Records a success.
    pub(crate) fn record_success(&mut self) {
        if let Some(failing) = self.failing.take() {
            let seconds = failing.since.elapsed().as_secs();
            tracing::info!(
                what = self.what,
                failing_seconds = seconds,
                "etcd works again"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_persistent_failure_is_logged_rarely() {
        let mut failure_log = FailureLog::new("publishing");
        let full = || EtcdError::Full {
            endpoint: "a:1".to_owned(),
        };
        assert!(failure_log.record_failure(&full()));
        assert!(!failure_log.record_failure(&full()));
        assert!(
            failure_log.record_failure(&EtcdError::LeaseOver),
            "another failure"
        );
        assert!(!failure_log.record_failure(&EtcdError::LeaseOver));
        tokio::time::advance(AGAIN_EVERY).await;
        assert!(failure_log.record_failure(&EtcdError::LeaseOver));
        failure_log.record_success();
        assert!(
            failure_log.record_failure(&EtcdError::LeaseOver),
            "it worked between"
        );
    }
}
