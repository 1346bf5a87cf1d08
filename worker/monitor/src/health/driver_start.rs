//! Retries of a GPU driver that does not start although the host has GPUs, with reports until it does.

use std::time::Duration;

use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use crate::health::{Observation, Sample, THIS_HOST};

/// The rule for this fault.
const RULE: &str = "nvml_init";

/// Reading for a driver that does not start, with its message.
pub(super) fn failed(why: &str) -> Observation {
    Observation::SampleWithText(sample(1), why.to_owned())
}

/// Reading with a number of failed starts.
pub(super) fn sample(failures: i64) -> Sample {
    Sample::new(RULE, THIS_HOST, &[("failures", failures)])
}

/// Reports that the driver did not start and why, and retries after every `period` until it starts or the
/// receiver is gone.
pub(super) async fn repeat<F>(
    mut why: String,
    open: impl Fn() -> F,
    period: Duration,
    seen: Sender<Observation>,
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
    tracing::warn!("the driver starts now: restart the agent to offer its GPUs");
    // Closed: the agent is ending, and so does this task.
    drop(seen.send(Observation::Samples(vec![sample(0)])).await);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_does_not_start_is_reported_with_the_reason_until_it_does() {
        let (sender, mut observations) = mpsc::channel(8);
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
        while let Some(seen) = observations.recv().await {
            all.push(match seen {
                Observation::SampleWithText(sample, why) => (sample.metrics[0].1, why),
                Observation::Samples(samples) => (samples[0].metrics[0].1, String::new()),
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
