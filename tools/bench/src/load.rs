//! Closed-loop load: a fixed number of operations in flight, each followed at once by the next one.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// End of a loop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After this time.
    Elapsed(Duration),
    /// After this number of operations.
    Done(u64),
}

/// Result of a loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded {
    /// Answered operations.
    pub(crate) operations: u64,
    /// From the first operation's start to the last one's answer.
    pub(crate) took: Duration,
}

impl Loaded {
    /// Operations per second.
    pub(crate) fn rate(self) -> f64 {
        self.operations as f64 / self.took.as_secs_f64()
    }
}

/// Keeps `in_flight` operations running, numbered from 0, until the end; the first failure ends it.
pub(crate) async fn closed_loop<Operate, Operating>(
    in_flight: usize,
    until: Until,
    operate: Operate,
) -> anyhow::Result<Loaded>
where
    Operate: Fn(u64) -> Operating + Clone + Send + 'static,
    Operating: Future<Output = anyhow::Result<()>> + Send,
{
    let began = Instant::now();
    let begun = Arc::new(AtomicU64::new(0));
    let mut lanes = JoinSet::new();
    for _ in 0..in_flight {
        let operate = operate.clone();
        let begun = Arc::clone(&begun);
        lanes.spawn(async move {
            let mut done = 0u64;
            loop {
                let number = begun.fetch_add(1, Ordering::Relaxed);
                let is_over = match until {
                    Until::Elapsed(limit) => began.elapsed() >= limit,
                    Until::Done(count) => number >= count,
                };
                if is_over {
                    return anyhow::Ok(done);
                }
                operate(number).await?;
                done += 1;
            }
        });
    }
    let mut operations = 0;
    while let Some(lane) = lanes.join_next().await {
        operations += lane.context("a lane of the load ended early")??;
    }
    Ok(Loaded {
        operations,
        took: began.elapsed(),
    })
}
