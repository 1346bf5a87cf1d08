//! Running attempts with their expected ends, as the planner considers them for preemption and reservations.

use muster_engine::state::{BasisKind, Job, Running, State};
use muster_model::spec::TaskGroup;
use muster_model::time::TimeMs;

/// Expected end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// The best estimate.
    pub(super) at: TimeMs,
    /// Whether the end is known from a time limit or experience, not only estimated from the attempt's age.
    pub(super) is_known: bool,
}

/// GPUs that a unit could use.
pub(super) struct Useful<'j> {
    job: &'j Job,
    what: What,
}

enum What {
    /// The unit requests no GPUs: any attempt may have what it needs.
    Anything,
    /// GPUs of any model.
    AnyGpus,
    /// GPUs of some models.
    SomeModels,
}

impl<'j> Useful<'j> {
    pub(super) fn for_job(state: &State, job: &'j Job) -> Self {
        let useful = Self {
            job,
            what: What::SomeModels,
        };
        let models = || state.index.free.keys().filter(|class| !class.is_empty());
        let what = match useful.asking().next() {
            None => What::Anything,
            Some(_) if models().all(|model| useful.is_accepted(model)) => What::AnyGpus,
            Some(_) => What::SomeModels,
        };
        Self { what, ..useful }
    }

    fn asking(&self) -> impl Iterator<Item = &'j TaskGroup> {
        let groups = self.job.spec.groups.iter();
        groups.filter(|group| group.resources.gpus > 0)
    }

    fn is_accepted(&self, model: &str) -> bool {
        self.asking()
            .any(|group| group.resources.accepts_model(model))
    }

    /// Whether an attempt holds something that the unit could use.
    pub(super) fn has(&self, state: &State, running: &Running<'_>) -> bool {
        let mut runs = running.attempt.tasks.iter();
        match self.what {
            What::Anything => true,
            What::AnyGpus => runs.any(|run| !run.gpus.is_empty()),
            What::SomeModels => runs.any(|run| {
                let gpu = run.gpus.first().zip(state.host(run.host));
                gpu.is_some_and(|(uuid, host)| {
                    let gpu = host.gpus.iter().find(|gpu| gpu.uuid == *uuid);
                    gpu.is_some_and(|gpu| self.is_accepted(&gpu.model))
                })
            }),
        }
    }
}

impl End {
    /// Expected end of an attempt: at its time limit at the latest; by experience with its kind; otherwise
    /// after as long a time as it has already run. An attempt being stopped ends with its grace period.
    pub(super) fn of(state: &State, running: &Running<'_>, now: TimeMs) -> Self {
        let known_end = |at| Self { at, is_known: true };
        let Running { job, attempt, .. } = *running;
        if let Some(stop) = &attempt.stop {
            return known_end(stop.at.after(stop.grace_ms).max(now));
        }
        let since = attempt.running_at.unwrap_or(attempt.placed_at);
        let spec = &job.spec;
        let limit_ms = spec.scheduling.run_time_ms_max;
        let at_limit = limit_ms.map(|limit_ms| since.after(limit_ms).max(now));
        let usual_ms = state.index.run_times.usual_ms(spec);
        // Experience does not apply to an attempt that has already run longer than usual.
        let as_usual = usual_ms
            .map(|usual_ms| since.after(usual_ms))
            .filter(|end| *end > now);
        match (at_limit, as_usual) {
            (Some(at_limit), Some(as_usual)) => known_end(at_limit.min(as_usual)),
            (Some(end), None) | (None, Some(end)) => known_end(end),
            (None, None) => Self {
                at: now.after(now.since(since)),
                is_known: false,
            },
        }
    }
}

/// All attempts that hold resources, by expected end.
pub(super) fn by_end(state: &State, now: TimeMs) -> Vec<(End, Running<'_>)> {
    let keys = state.index.attempts.values().flatten();
    let running = keys.filter_map(|key| {
        let running = Running::of(state, key.unit_id())?;
        Some((End::of(state, &running, now), running))
    });
    let mut ending: Vec<_> = running.collect();
    ending.sort_unstable_by_key(|(end, running)| (end.at, running.unit_id()));
    ending
}

/// Attempts that are being stopped.
pub(super) fn stopping(state: &State) -> impl Iterator<Item = Running<'_>> {
    let classes = state.index.attempts.iter();
    let stopping = classes.take_while(|(class, _)| class.basis == BasisKind::Stopping);
    stopping
        .flat_map(|(_, keys)| keys)
        .filter_map(|key| Running::of(state, key.unit_id()))
}
