//! Tells how far the only world of a sweep has come.

use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::{HOUR_MS, Sweep};
use crate::sim::judges::Judges;

/// Nothing is ever sent to whoever tells: that it ends is the news.
const NEWS_MAX: usize = 0;
/// How often it is told how far the only world of a sweep has come.
const PROGRESS_EVERY: Duration = Duration::from_secs(60);

/// Does something, and tells meanwhile how far the world of some judges has come.
pub(super) fn telling(
    sweep: &Mutex<Sweep<'_>>,
    judges: &Judges,
    work: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let (done, is_done) = mpsc::sync_channel::<()>(NEWS_MAX);
    thread::scope(|scope| {
        let teller = scope.spawn(move || {
            while is_done.recv_timeout(PROGRESS_EVERY) == Err(RecvTimeoutError::Timeout) {
                let mut sweep = sweep.lock().unwrap_or_else(PoisonError::into_inner);
                sweep.tell_reached(judges.reached_ms())?;
            }
            Ok(())
        });
        let worked = work();
        drop(done);
        let told = teller.join();
        worked.and(told.unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

impl Sweep<'_> {
    /// Tells how far the only world has come.
    fn tell_reached(&mut self, reached_ms: u64) -> io::Result<()> {
        let hours = reached_ms as f64 / HOUR_MS;
        let faults_h = self.options.faults_s as f64 * 1_000.0 / HOUR_MS;
        writeln!(
            self.progress,
            "{hours:>6.2} h simulated, of {faults_h:.2} with faults and a quiet end"
        )?;
        self.progress.flush()
    }
}
