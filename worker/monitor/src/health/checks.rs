//! Periodic runs of the site's own checks.

use std::time::Duration;

use muster_backoff::jitter;
use muster_health::checks;
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use crate::health::{Observation, SiteCheck, program};

/// Runs a check until the receiver is gone. The next run starts a period after the last one ended, give or
/// take a tenth, so that hosts do not all query the same file server at once.
pub(super) async fn repeat(check: SiteCheck, seen: Sender<Observation>) {
    let limit = Duration::from_secs(check.timeout_s);
    let period = Duration::from_secs(check.period_s);
    loop {
        let ran = program::run(&check.command, limit).await;
        let result = checks::read(check.dialect.into(), ran.end, &ran.output);
        if seen
            .send(Observation::Checked(check.name.clone(), result))
            .await
            .is_err()
        {
            return;
        }
        sleep(period - jitter(period / 10)).await;
    }
}
