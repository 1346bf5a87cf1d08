//! Progress reports of a sweep, or of its only world.

use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

use crate::sim::sweep::{HOUR_MS, Sweep};

/// No message is ever sent: only the end of the channel counts.
const NEWS_MAX: usize = 0;
/// Interval between progress lines.
const PROGRESS_EVERY: Duration = Duration::from_secs(60);

/// Runs `work` and reports progress meanwhile.
pub(super) fn with_progress<'a>(
    sweep: &Mutex<Sweep<'a>>,
    report: impl Fn(&mut Sweep<'a>) -> io::Result<()> + Send,
    work: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let (done, is_done) = mpsc::sync_channel::<()>(NEWS_MAX);
    thread::scope(|scope| {
        let reporter = scope.spawn(move || {
            while is_done.recv_timeout(PROGRESS_EVERY) == Err(RecvTimeoutError::Timeout) {
                let mut sweep = sweep.lock().unwrap_or_else(PoisonError::into_inner);
                report(&mut sweep)?;
            }
            Ok(())
        });
        let worked = work();
        drop(done);
        let reported = reporter.join();
        worked.and(reported.unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

impl Sweep<'_> {
    /// Reports the progress of the only world.
    pub(super) fn report_simulated_time(&mut self, reached_ms: u64) -> io::Result<()> {
        let hours = reached_ms as f64 / HOUR_MS;
        let faults_h = self.options.faults_s as f64 * 1_000.0 / HOUR_MS;
        writeln!(
            self.progress,
            "{hours:>6.2} h simulated, of {faults_h:.2} h of faults and a quiet phase"
        )?;
        self.progress.flush()
    }

    /// Reports the number of finished worlds, unless each has its own line.
    pub(super) fn report_worlds(&mut self) -> io::Result<()> {
        if self.options.all_lines {
            return Ok(());
        }
        let faults: u64 = self.sums.faults.values().sum();
        writeln!(
            self.progress,
            "{:>6} of {} worlds, {} faults, {} acknowledged jobs, {} failed",
            self.sums.worlds,
            self.options.seeds,
            faults,
            self.sums.acknowledged,
            self.failures.len(),
        )?;
        self.progress.flush()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::{Sums, SweepOptions};
    use super::*;

    #[test]
    fn progress_counts_the_finished_worlds_unless_each_has_its_own_line() {
        for (all_lines, expected) in [
            (
                false,
                "     7 of 1000 worlds, 0 faults, 0 acknowledged jobs, 0 failed\n",
            ),
            (true, ""),
        ] {
            let options = SweepOptions {
                seeds: 1_000,
                all_lines,
                ..SweepOptions::default()
            };
            let mut lines = Vec::new();
            let mut sweep = Sweep {
                options: &options,
                sums: Sums {
                    worlds: 7,
                    ..Sums::default()
                },
                failures: Vec::new(),
                first: None,
                progress: &mut lines,
            };
            sweep.report_worlds().unwrap();
            assert_eq!(String::from_utf8(lines).unwrap(), expected);
        }
    }
}
