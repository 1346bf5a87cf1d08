//! Running a scheduler or a worker: settings, signals, and shutdown.

mod reload;

use std::future::Future;
use std::io;
use std::num::NonZero;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};

use self::reload::Reloader;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::logging;
use crate::settings::{Service, Source};
use crate::spans;

/// Concurrent work of a service is answering calls: decisions and applies run on one thread each. More
/// threads than this only wake each other.
const RUNTIME_THREADS_MAX: usize = 8;

/// As [`run`], for a service with settings: they are read now, and again at every SIGHUP. Starts logging
/// accordingly.
pub(crate) fn run_with_settings<S: Service, Running, Error>(
    close_max: Duration,
    source: Source<S>,
    start: impl FnOnce(watch::Receiver<S>, Shutdown) -> Running,
) -> Result<Exit, Failure>
where
    Running: Future<Output = Result<(), Error>>,
    Error: std::error::Error,
{
    let loaded = source.load()?;
    let log = logging::start_as(loaded.settings.logging())?;
    run(close_max, |shutdown| {
        let (name, instance) = loaded.settings.identity();
        let exported = spans::export(loaded.settings.tracing(), name, instance);
        let (reloader, settings) = Reloader::new(source, loaded, log);
        let service = start(settings, shutdown);
        async move {
            if let Err(failure) = exported {
                // The settings were checked: a remaining error must not keep this process from the cluster.
                tracing::error!(error = failure.text(), "cannot export spans");
            }
            let ended = tokio::select! {
                result = service => result,
                never = reloader.run() => match never {},
            };
            spans::finish().await;
            ended
        }
    })
}

/// Runs a service until it ends by itself or by a signal: the first SIGTERM or SIGINT requests a graceful
/// stop, the second one ends it at once. Waits for remaining threads, `close_max` at most.
pub(crate) fn run<Running, Error>(
    close_max: Duration,
    start: impl FnOnce(Shutdown) -> Running,
) -> Result<Exit, Failure>
where
    Running: Future<Output = Result<(), Error>>,
    Error: std::error::Error,
{
    let failed = |error: io::Error| Failure::new(format!("cannot start the runtime: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(runtime_threads())
        .enable_all()
        .build()
        .map_err(failed)?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::new().map_err(failed)?;
        let (ask, asked) = oneshot::channel();
        let service = start(Shutdown(asked));
        tokio::select! {
            result = service => result.map_err(|error| Failure::new(chain(&error))),
            () = signals.twice(ask) => {
                Err(Failure::new("stopped by a second signal, without a graceful stop"))
            }
        }
    });
    runtime.shutdown_timeout(close_max);
    ended.map(|()| Exit::Ok)
}

/// Threads of a service's runtime: one core is left to other threads (syncs of the log, RocksDB, snapshots).
/// On a machine of two cores one thread answers more submits than two that wake each other.
fn runtime_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    cores.saturating_sub(1).clamp(1, RUNTIME_THREADS_MAX)
}

/// Completes when the service should stop.
pub(crate) struct Shutdown(oneshot::Receiver<()>);

impl Shutdown {
    /// Waits for the first signal.
    pub(crate) async fn requested(self) {
        // The sender lives as long as the service runs, so an error cannot come before a signal.
        drop(self.0.await);
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Requests a graceful stop at the first signal, returns at the second.
    async fn twice(&mut self, ask: oneshot::Sender<()>) {
        self.next().await;
        tracing::info!("stopping; a second signal stops at once");
        if ask.send(()).is_err() {
            tracing::debug!("the service is already stopping");
        }
        self.next().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::sync_channel;

    use super::*;

    /// Duration of uninterruptible work on a thread.
    const WORK: Duration = Duration::from_millis(300);

    /// Whether such a thread had finished when the wait for its service ended.
    fn is_work_done(close_max: Duration) -> bool {
        let done = Arc::new(AtomicBool::new(false));
        let doing = Arc::clone(&done);
        let ended = run(close_max, |_shutdown| async move {
            let (begin, begun) = oneshot::channel();
            tokio::task::spawn_blocking(move || {
                begin.send(()).expect("the service waits");
                let (_silent_sender, receiver) = sync_channel::<()>(1);
                assert!(receiver.recv_timeout(WORK).is_err());
                doing.store(true, Ordering::Release);
            });
            begun.await
        });
        assert!(ended.is_ok());
        done.load(Ordering::Acquire)
    }

    #[test]
    fn a_thread_in_the_database_is_waited_for_and_others_are_not() {
        assert!(is_work_done(Duration::from_secs(60)));
        assert!(!is_work_done(Duration::ZERO));
    }
}
