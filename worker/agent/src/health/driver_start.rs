//! A driver that does not start: the host should have GPUs and offers none. Tried again and told until it does.

use std::time::Duration;

use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use crate::health::{Sample, Seen, THIS_HOST};

/// The rule about it.
const RULE: &str = "nvml_init";

/// That the driver does not start, in its words.
pub(super) fn failed(why: &str) -> Seen {
    Seen::Said(sample(1), why.to_owned())
}

/// That it does.
pub(super) fn sample(failures: i64) -> Sample {
    Sample::new(RULE, THIS_HOST, &[("failures", failures)])
}

/// Tells that the driver did not start, for this reason, and tries again after every `period` until it does, or nobody listens.
pub(super) async fn repeat<F>(
    mut why: String,
    open: impl Fn() -> F,
    period: Duration,
    seen: Sender<Seen>,
) where
    F: Future<Output = Result<(), String>>,
{
    loop {
        if seen.send(failed(&why)).await.is_err() {
            return;
        }
        sleep(period).await;
        match open().await {
            Ok(()) => break,
            Err(error) => why = error,
        }
    }
    tracing::warn!("the driver starts now: its GPUs are offered once the agent is started again");
    // Closed: the agent ends, and so do we.
    drop(seen.send(Seen::Samples(vec![sample(0)])).await);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_told_with_its_reason_until_the_driver_starts() {
        let (sender, mut told) = mpsc::channel(8);
        let tries = AtomicU32::new(0);
        let open = || async {
            match tries.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => Err("NVIDIA driver is not loaded".to_owned()),
                _ => Ok(()),
            }
        };
        let first = "the first reason".to_owned();
        repeat(first, open, Duration::from_secs(10), sender).await;
        let mut all = Vec::new();
        while let Some(seen) = told.recv().await {
            all.push(match seen {
                Seen::Said(sample, why) => (sample.metrics[0].1, why),
                Seen::Samples(samples) => (samples[0].metrics[0].1, String::new()),
                other => unreachable!("{other:?}"),
            });
        }
        let expected = [
            (1, "the first reason"),
            (1, "NVIDIA driver is not loaded"),
            (1, "NVIDIA driver is not loaded"),
            (0, ""),
        ];
        assert_eq!(
            all,
            expected.map(|(failures, why)| (failures, why.to_owned()))
        );
    }
}
