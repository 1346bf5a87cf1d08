//! Attempts that hold resources, as candidates that may end by themselves or be preempted.

use std::collections::BTreeSet;

use crate::command::Victim;
use crate::ids::UnitIndex;
use crate::state::{Attempt, Job, State, Unit};
use crate::time::TimeMs;

/// An attempt of a unit of a job.
#[derive(Clone, Copy)]
pub(super) struct Running<'a> {
    pub(super) job: &'a Job,
    pub(super) index: UnitIndex,
    pub(super) unit: &'a Unit,
    pub(super) attempt: &'a Attempt,
}

/// When an attempt should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// The best guess.
    pub(super) at: TimeMs,
    /// Whether a time limit or experience says so, and not only its age.
    pub(super) is_told: bool,
}

impl<'a> Running<'a> {
    /// How commands name it.
    pub(super) const fn named(&self) -> Victim {
        Victim {
            job: self.job.id,
            unit: self.index,
            epoch: self.attempt.epoch,
        }
    }

    pub(super) const fn is_stopping(&self) -> bool {
        self.attempt.stop.is_some()
    }

    /// Whether it has something that a unit of another job could use.
    pub(super) fn serves(&self, state: &State, job: &Job) -> bool {
        let mut asking = job
            .spec
            .groups
            .iter()
            .filter(|group| group.resources.gpus > 0);
        let needs_gpus = asking.clone().next().is_some();
        !needs_gpus
            || self.attempt.tasks.iter().any(|run| {
                let host = state.host(run.host);
                let model = host.and_then(|host| {
                    let uuid = run.gpus.first()?;
                    let gpu = host.gpus.iter().find(|gpu| gpu.uuid == *uuid)?;
                    Some(&gpu.model)
                });
                model.is_some_and(|model| asking.any(|group| group.resources.accepts_model(model)))
            })
    }

    /// When it should end: at its time limit at the latest; by experience with its kind; or in as long a time as it
    /// has run. One that is being stopped ends with its grace.
    pub(super) fn end(&self, state: &State, now: TimeMs) -> End {
        let told = |at| End { at, is_told: true };
        if let Some(stop) = &self.attempt.stop {
            return told(stop.at.after(stop.grace_ms).max(now));
        }
        let since = self.attempt.running_at.unwrap_or(self.attempt.placed_at);
        let spec = &self.job.spec;
        let limit = spec.scheduling.run_time_ms_max;
        let limit = limit.map(|limit_ms| since.after(limit_ms).max(now));
        let learnt = state.index.run_times.usual_ms(spec);
        let learnt = learnt.map(|usual_ms| since.after(usual_ms));
        // Who ran longer than usual is an exception, of which experience says nothing.
        match (limit, learnt.filter(|end| *end > now)) {
            (Some(limit), Some(learnt)) => told(limit.min(learnt)),
            (Some(end), None) | (None, Some(end)) => told(end),
            (None, None) => End {
                at: now.after(now.since(since)),
                is_told: false,
            },
        }
    }
}

/// All attempts that hold resources, by job and unit.
pub(super) fn all(state: &State) -> Vec<Running<'_>> {
    let units: BTreeSet<_> = state
        .index
        .on_host
        .keys()
        .map(|(_, job, unit)| (*job, *unit))
        .collect();
    let running = units.into_iter().filter_map(|(job, index)| {
        let job = state.job(job)?;
        let unit = job.unit(index)?;
        Some(Running {
            job,
            index,
            unit,
            attempt: unit.attempt.as_deref()?,
        })
    });
    running.collect()
}
