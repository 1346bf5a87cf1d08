//! Report of the trials: measurements, violations, and the summary table.

use std::fmt;

use muster_model::lifecycle::JobPhase;
use muster_text::Table;
use serde::Serialize;

use crate::checkers::{ConcurrentAttempts, RepeatedWork};
use crate::cluster::Fault;
use crate::trials::Trial;
use crate::trials::options::{RANKS, THAW_MS_MAX};

/// Milliseconds per second.
const SECOND_MS: f64 = 1_000.0;
/// Titles of the summary table.
const TITLES: [&str; 7] = [
    "fault",
    "noticed after",
    "back after",
    "attempts",
    "steps repeated",
    "lost GPU-seconds",
    "concurrent",
];
/// Prefix of a conflict about a task's own lock, in the ledger's file.
const TASK_LOCKS: &str = "tasks/";

/// Measurements of one trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Milliseconds from the fault to the first sign of it in the cluster's events; `None` without a sign.
    pub noticed_ms: Option<u64>,
    /// Milliseconds from the fault until the training made steps again after its longest interruption;
    /// `None` without an interruption.
    pub back_ms: Option<u64>,
    /// Number of attempts with running processes.
    pub attempts: usize,
    /// Repeated steps.
    pub repeated: RepeatedWork,
    /// Attempts whose processes ran concurrently.
    pub lived_at_once: Vec<ConcurrentAttempts>,
    /// GPUs with two owners at once, as detected by the tasks.
    pub double_allocations: Vec<String>,
    /// Final phase of the job; `None` if it did not end in time.
    pub phase: Option<JobPhase>,
    /// Digest of the final weights, and of those of an undisturbed run.
    pub weights: (String, String),
}

/// Result of one trial.
#[derive(Clone, Debug, Serialize)]
pub struct TrialReport {
    /// The injected fault.
    pub fault: Fault,
    /// As in [`Measured`].
    pub noticed_ms: Option<u64>,
    /// As in [`Measured`].
    pub back_ms: Option<u64>,
    /// Number of attempts with running processes; 0 if the trial could not be carried out.
    pub attempts: usize,
    /// Repeated steps of the whole gang.
    pub steps_repeated: u64,
    /// Time lost by them, over all ranks, in thousandths of GPU-seconds.
    pub lost_gpu_ms: u64,
    /// Attempts whose processes ran concurrently.
    pub lived_at_once: Vec<ConcurrentAttempts>,
    /// Violations, or the reason why the trial could not be carried out; empty if everything held.
    pub broken: Vec<String>,
}

impl TrialReport {
    /// Checks the measurements.
    #[must_use]
    pub fn of(trial: Trial, measured: Measured) -> Self {
        Self {
            fault: trial.fault,
            noticed_ms: measured.noticed_ms,
            back_ms: measured.back_ms,
            attempts: measured.attempts,
            steps_repeated: measured.repeated.steps,
            lost_gpu_ms: measured.repeated.time_ms * u64::from(RANKS),
            broken: broken(trial, &measured),
            lived_at_once: measured.lived_at_once,
        }
    }

    /// A trial that could not be completed.
    #[must_use]
    pub fn unplayed(trial: Trial, why: String) -> Self {
        Self {
            fault: trial.fault,
            noticed_ms: None,
            back_ms: None,
            attempts: 0,
            steps_repeated: 0,
            lost_gpu_ms: 0,
            lived_at_once: Vec::new(),
            broken: vec![why],
        }
    }

    /// Longest time for which two attempts ran concurrently, in milliseconds.
    fn overlap_ms(&self) -> u64 {
        let overlaps = self.lived_at_once.iter().map(|it| it.overlap_ms);
        overlaps.max().unwrap_or(0)
    }
}

/// Whether a conflict is about the own lock of a task on a frozen host: the task executes nothing until the
/// thaw, and the concurrent run time after that is checked separately. Conflicts about its GPUs still
/// count.
fn is_of_frozen_task(trial: Trial, conflict: &str) -> bool {
    trial.fault == Fault::HostFrozen && conflict.starts_with(TASK_LOCKS)
}

/// The violations.
fn broken(trial: Trial, measured: &Measured) -> Vec<String> {
    let mut found = Vec::new();
    match measured.phase {
        Some(JobPhase::Succeeded) => {}
        Some(phase) => found.push(format!("the training {phase}")),
        None => found.push("the training did not end in time".to_owned()),
    }
    let (faulty, calm) = &measured.weights;
    if faulty != calm {
        found.push(format!("the weights are {faulty}, but {calm} undisturbed"));
    }
    let overlap_ms_max = match trial.fault {
        Fault::HostFrozen => THAW_MS_MAX,
        _ => 0,
    };
    for at_once in &measured.lived_at_once {
        let ConcurrentAttempts {
            older,
            newer,
            overlap_ms,
        } = at_once;
        if *overlap_ms > overlap_ms_max {
            found.push(format!(
                "attempts {older} and {newer} ran concurrently for {overlap_ms} ms"
            ));
        }
    }
    let conflicts = measured.double_allocations.iter();
    found.extend(
        conflicts
            .filter(|it| !is_of_frozen_task(trial, it))
            .cloned(),
    );
    let expected = trial.attempts();
    if !expected.contains(&measured.attempts) {
        found.push(format!(
            "the training took {} attempts, not {} to {}",
            measured.attempts,
            expected.start(),
            expected.end()
        ));
    }
    found
}

/// Results of all trials.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TrialsReport {
    /// In the order of execution.
    pub trials: Vec<TrialReport>,
    /// Digest of the weights of the undisturbed training.
    pub weights: String,
}

impl TrialsReport {
    /// Whether every invariant held in every trial.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.trials.is_empty() && self.trials.iter().all(|trial| trial.broken.is_empty())
    }

    /// Verdict in one line.
    #[must_use]
    pub fn verdict(&self) -> String {
        let bad = self.trials.iter().filter(|trial| !trial.broken.is_empty());
        match (self.trials.len(), bad.count()) {
            (0, _) => "NOTHING WAS TESTED".to_owned(),
            (count, 0) => format!(
                "every promise held in {count} trials: final weights bit-identical to an undisturbed run ({}), \
                 never two attempts at once beyond the contract, no job lost",
                self.weights
            ),
            (count, bad) => format!("A PROMISE WAS BROKEN in {bad} of {count} trials"),
        }
    }
}

impl fmt::Display for TrialsReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = Table::of_numbers(&TITLES).with_rows(self.trials.iter().map(cells));
        write!(formatter, "{table}")?;
        for trial in &self.trials {
            for broken in &trial.broken {
                writeln!(formatter, "BROKEN in {}: {broken}", trial.fault.name())?;
            }
        }
        writeln!(formatter, "\n{}", self.verdict())
    }
}

fn cells(trial: &TrialReport) -> Vec<String> {
    vec![
        trial.fault.name().to_owned(),
        seconds(trial.noticed_ms, "never"),
        seconds(trial.back_ms, "unaffected"),
        trial.attempts.to_string(),
        trial.steps_repeated.to_string(),
        format!("{:.1}", trial.lost_gpu_ms as f64 / SECOND_MS),
        format!("{} ms", trial.overlap_ms()),
    ]
}

fn seconds(ms: Option<u64>, none: &str) -> String {
    ms.map_or_else(
        || none.to_owned(),
        |ms| format!("{:.2} s", ms as f64 / SECOND_MS),
    )
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_model::ids::AttemptEpoch;

    use super::*;

    fn trial(fault: Fault) -> Trial {
        Trial::named(fault.name()).unwrap()
    }

    fn measured() -> Measured {
        Measured {
            noticed_ms: Some(120),
            back_ms: Some(900),
            attempts: 2,
            repeated: RepeatedWork {
                steps: 24,
                time_ms: 600,
            },
            lived_at_once: Vec::new(),
            double_allocations: Vec::new(),
            phase: Some(JobPhase::Succeeded),
            weights: ("a".to_owned(), "a".to_owned()),
        }
    }

    fn broken_in(trial: Trial, change: impl FnOnce(&mut Measured)) -> Vec<String> {
        let mut changed = measured();
        change(&mut changed);
        TrialReport::of(trial, changed).broken
    }

    #[test]
    fn each_promise_is_judged() {
        let killed = trial(Fault::SupervisorKilled);
        let frozen = trial(Fault::HostFrozen);
        assert_eq!(broken_in(killed, |_| {}), [""; 0]);
        let at_once = |overlap_ms| ConcurrentAttempts {
            older: AttemptEpoch(3),
            newer: AttemptEpoch(9),
            overlap_ms,
        };
        let broken = [
            broken_in(killed, |it| it.phase = None),
            broken_in(killed, |it| it.phase = Some(JobPhase::Failed)),
            broken_in(killed, |it| it.weights.0 = "b".to_owned()),
            broken_in(killed, |it| it.lived_at_once.push(at_once(1))),
            broken_in(killed, |it| it.double_allocations.push("GPU-1".to_owned())),
            broken_in(killed, |it| it.attempts = 1),
            broken_in(frozen, |it| {
                it.lived_at_once.push(at_once(THAW_MS_MAX + 1));
            }),
        ];
        assert!(broken.iter().all(|found| found.len() == 1), "{broken:?}");
        let thawed = broken_in(frozen, |it| it.lived_at_once.push(at_once(40)));
        assert_eq!(thawed, [""; 0]);
        let count_in = |trial, conflict: &str| {
            broken_in(trial, |it| it.double_allocations.push(conflict.to_owned())).len()
        };
        let of_task = "tasks/6-1 is held by another process";
        assert_eq!(count_in(frozen, of_task), 0);
        assert_eq!(
            (count_in(killed, of_task), count_in(frozen, "GPU-1")),
            (1, 1)
        );
    }

    #[test]
    fn the_table_ends_with_a_verdict() {
        let mut report = TrialsReport::default();
        assert!(!report.holds(), "nothing was tested");
        let good = TrialReport::of(trial(Fault::SupervisorKilled), measured());
        assert_eq!(good.lost_gpu_ms, 2_400);
        report.trials.push(good);
        assert!(
            report.holds()
                && report
                    .to_string()
                    .contains("every promise held in 1 trials")
        );
        let why = "it did not start".to_owned();
        report
            .trials
            .push(TrialReport::unplayed(trial(Fault::HostFrozen), why));
        assert!(!report.holds());
        let text = report.to_string();
        assert!(
            text.contains("BROKEN in host-frozen: it did not start"),
            "{text}"
        );
        assert!(
            text.ends_with("A PROMISE WAS BROKEN in 1 of 2 trials\n"),
            "{text}"
        );
    }
}
