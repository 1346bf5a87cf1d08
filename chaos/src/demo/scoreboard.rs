//! Measurements of the demo and its final table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use muster_model::event::{Event, EventKind};
use muster_model::ids::JobId;
use muster_model::lifecycle::JobPhase;

use crate::cluster::Fault;

/// Measurements of one fault.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultRecord {
    /// The fault.
    pub fault: Fault,
    /// Time to detection: a new leader wrote, a host was lost, or a GPU was out.
    pub detected: Duration,
    /// Time until the training ran again; `None` if it was not interrupted.
    pub resumed: Option<Duration>,
    /// GPU-seconds of training since the last checkpoint, which have to be repeated.
    pub lost_gpu_seconds: f64,
}

/// Counts and measurements.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    /// Faults in the order of injection.
    pub faults: Vec<FaultRecord>,
    /// Jobs whose submission was acknowledged.
    acknowledged: BTreeSet<JobId>,
    /// Jobs with a running unit.
    running: BTreeSet<JobId>,
    /// Final phase of each ended job.
    finished: BTreeMap<JobId, JobPhase>,
    /// GPUs with two owners at once, as detected by the tasks.
    pub double_allocations: Vec<String>,
    /// Digest of the weights of the run with faults, and of the undisturbed run.
    pub digests: Option<(String, String)>,
}

impl Scoreboard {
    /// Counts an acknowledged submission.
    pub fn acknowledged(&mut self, job: JobId) {
        self.acknowledged.insert(job);
    }

    /// Counts an event.
    pub fn observe(&mut self, event: &Event) {
        match &event.kind {
            EventKind::AttemptRunning { job, .. } => {
                self.running.insert(*job);
            }
            EventKind::AttemptEnded { job, .. } => {
                self.running.remove(job);
            }
            EventKind::JobFinished { job, phase, .. } => {
                self.finished.insert(*job, *phase);
            }
            _ => {}
        }
    }

    /// Number of acknowledged jobs.
    #[must_use]
    pub fn submitted(&self) -> usize {
        self.acknowledged.len()
    }

    /// Number of acknowledged jobs that succeeded.
    #[must_use]
    pub fn completed(&self) -> usize {
        let well = |job: &&JobId| self.finished.get(job) == Some(&JobPhase::Succeeded);
        self.acknowledged.iter().filter(well).count()
    }

    /// Acknowledged jobs that ended without success.
    #[must_use]
    pub fn failed(&self) -> Vec<JobId> {
        self.missing()
            .into_iter()
            .filter(|job| self.finished.contains_key(job))
            .collect()
    }

    /// Acknowledged jobs that have not succeeded: lost, failed or still active.
    #[must_use]
    pub fn missing(&self) -> Vec<JobId> {
        let well = |job: &JobId| self.finished.get(job) == Some(&JobPhase::Succeeded);
        self.acknowledged
            .iter()
            .copied()
            .filter(|job| !well(job))
            .collect()
    }

    /// Job counts for the progress line, once there are several jobs.
    #[must_use]
    pub fn progress(&self) -> Option<String> {
        let text = format!(
            "jobs: {} acknowledged, {} running, {} completed",
            self.submitted(),
            self.running.len(),
            self.completed()
        );
        (self.submitted() > 1).then_some(text)
    }

    /// Whether every invariant held.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.missing().is_empty()
            && self.submitted() > 0
            && self.double_allocations.is_empty()
            && self
                .digests
                .as_ref()
                .is_some_and(|(faulty, calm)| faulty == calm)
    }
}

impl fmt::Display for Scoreboard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{:<42} {:>10} {:>12} {:>16}",
            "fault", "detected", "training", "work lost"
        )?;
        writeln!(
            formatter,
            "{:<42} {:>10} {:>12} {:>16}",
            "", "after", "back after", "GPU-seconds"
        )?;
        for fault in &self.faults {
            let resumed = fault.resumed.map_or_else(
                || "unaffected".to_owned(),
                |after| format!("{:.2} s", after.as_secs_f64()),
            );
            writeln!(
                formatter,
                "{:<42} {:>8.2} s {resumed:>12} {:>16.1}",
                fault.fault.name(),
                fault.detected.as_secs_f64(),
                fault.lost_gpu_seconds,
            )?;
        }
        writeln!(formatter)?;
        writeln!(
            formatter,
            "{:<42} {:>10}",
            "jobs acknowledged",
            self.submitted()
        )?;
        writeln!(
            formatter,
            "{:<42} {:>10}",
            "jobs completed",
            self.completed()
        )?;
        writeln!(
            formatter,
            "{:<42} {:>10}",
            "jobs failed",
            self.failed().len()
        )?;
        writeln!(
            formatter,
            "{:<42} {:>10}",
            "jobs lost",
            self.missing().len() - self.failed().len()
        )?;
        writeln!(
            formatter,
            "{:<42} {:>10}",
            "double allocations",
            self.double_allocations.len()
        )?;
        let weights = match &self.digests {
            Some((faulty, calm)) if faulty == calm => format!("bit-identical ({faulty})"),
            Some((faulty, calm)) => format!("DIFFERENT: {faulty}, undisturbed {calm}"),
            None => "NOT COMPARED".to_owned(),
        };
        writeln!(
            formatter,
            "{:<42} {weights}",
            "final weights compared with an undisturbed run"
        )
    }
}

#[cfg(test)]
mod tests {
    use muster_model::ids::Revision;
    use muster_model::time::TimeMs;

    use super::*;

    fn finished(job: u64, phase: JobPhase) -> Event {
        let kind = EventKind::JobFinished {
            job: JobId(job),
            phase,
            reason: String::new(),
        };
        Event {
            revision: Revision(1),
            time: TimeMs(1),
            kind,
        }
    }

    #[test]
    fn it_holds_only_if_everything_held() {
        let mut board = Scoreboard::default();
        assert!(!board.holds(), "nothing was tested");
        board.acknowledged(JobId(1));
        board.digests = Some(("a".to_owned(), "a".to_owned()));
        assert!(!board.holds(), "the job has not ended");
        board.observe(&finished(1, JobPhase::Failed));
        assert_eq!(board.failed(), [JobId(1)]);
        assert!(!board.holds(), "the job failed");
        board.observe(&finished(1, JobPhase::Succeeded));
        assert!(board.holds());
        board.double_allocations.push("GPU-1".to_owned());
        assert!(!board.holds(), "a GPU was allocated twice");
    }

    #[test]
    fn different_weights_are_shouted() {
        let board = Scoreboard {
            digests: Some(("a".to_owned(), "b".to_owned())),
            ..Scoreboard::default()
        };
        assert!(board.to_string().contains("DIFFERENT"));
        assert!(!board.holds());
    }
}
