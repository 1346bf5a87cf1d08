//! What the events tell of each attempt: complete, in order, nothing twice, and as the state has it.
//!
//! Only attempts whose placement is among the events that are kept are looked at: of others, older events are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use crate::audit::{Report, Rule};
use crate::event::EventKind;
use crate::ids::{AttemptEpoch, JobId, TaskIndex, UnitIndex};
use crate::lifecycle::TaskPhase;
use crate::state::{Attempt, Job, State};

/// Names an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    job: JobId,
    unit: UnitIndex,
    epoch: AttemptEpoch,
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { job, unit, epoch } = self;
        write!(formatter, "job {job} unit {unit} attempt {epoch}")
    }
}

/// What the events have told of an attempt so far.
#[derive(Debug, Default)]
struct Story {
    started: BTreeSet<TaskIndex>,
    ended: BTreeSet<TaskIndex>,
    is_running: bool,
    is_stopping: bool,
    is_over: bool,
}

/// What an event tells of an attempt.
enum Chapter {
    Placed,
    Started(TaskIndex),
    Running,
    TaskEnded(TaskIndex),
    Stopping,
    Over,
}

pub(super) fn check(state: &State, report: &mut Report) {
    let mut stories: BTreeMap<Key, Story> = BTreeMap::new();
    for (_, events) in state.events.iter() {
        for event in events.iter() {
            if let Some((key, chapter)) = chapter_of(&event.kind) {
                read(&mut stories, key, &chapter, report);
            }
        }
    }
    for (key, story) in &stories {
        // Of a job that is forgotten the story is all there is.
        if let Some(job) = state.job(key.job) {
            compare(job, *key, story, report);
        }
    }
}

fn chapter_of(kind: &EventKind) -> Option<(Key, Chapter)> {
    let (job, unit, epoch, chapter) = match kind {
        EventKind::AttemptPlaced {
            job, unit, epoch, ..
        } => (job, unit, epoch, Chapter::Placed),
        EventKind::TaskStarted {
            job,
            unit,
            epoch,
            task,
            ..
        } => (job, unit, epoch, Chapter::Started(*task)),
        EventKind::AttemptRunning { job, unit, epoch } => (job, unit, epoch, Chapter::Running),
        EventKind::TaskExited {
            job,
            unit,
            epoch,
            task,
            ..
        }
        | EventKind::TaskLost {
            job,
            unit,
            epoch,
            task,
            ..
        } => (job, unit, epoch, Chapter::TaskEnded(*task)),
        EventKind::AttemptStopping {
            job, unit, epoch, ..
        } => (job, unit, epoch, Chapter::Stopping),
        EventKind::AttemptEnded {
            job, unit, epoch, ..
        } => (job, unit, epoch, Chapter::Over),
        _ => return None,
    };
    let key = Key {
        job: *job,
        unit: *unit,
        epoch: *epoch,
    };
    Some((key, chapter))
}

fn read(stories: &mut BTreeMap<Key, Story>, key: Key, chapter: &Chapter, report: &mut Report) {
    if matches!(chapter, Chapter::Placed) {
        let earlier = stories.insert(key, Story::default());
        report.require(earlier.is_none(), Rule::AttemptEvents, &key, || {
            "it was placed twice".to_owned()
        });
        return;
    }
    let Some(story) = stories.get_mut(&key) else {
        return;
    };
    let mut require = |holds: bool, detail: &str| {
        report.require(holds, Rule::AttemptEvents, &key, || detail.to_owned());
    };
    require(!story.is_over, "something happened after its end");
    match chapter {
        Chapter::Placed => {}
        Chapter::Started(task) => {
            let is_first = story.started.insert(*task) && !story.ended.contains(task);
            require(is_first, "a task started twice, or after its end");
        }
        Chapter::Running => {
            require(!story.is_running, "it was running twice");
            story.is_running = true;
        }
        Chapter::TaskEnded(task) => {
            require(story.ended.insert(*task), "a task ended twice");
        }
        Chapter::Stopping => {
            require(!story.is_stopping, "it was told to stop twice");
            story.is_stopping = true;
        }
        Chapter::Over => story.is_over = true,
    }
}

/// Whether the state says the same.
fn compare(job: &Job, key: Key, story: &Story, report: &mut Report) {
    let current = job.unit(key.unit).and_then(|unit| unit.attempt.as_deref());
    let current = current.filter(|attempt| attempt.epoch == key.epoch);
    report.require(
        current.is_some() != story.is_over,
        Rule::AttemptEvents,
        &key,
        || match current {
            Some(_) => "its end was told, and it goes on".to_owned(),
            None => "it is over, and its end was not told".to_owned(),
        },
    );
    match current {
        Some(attempt) => compare_tasks(attempt, key, story, report),
        None => {
            let tasks = tasks_of_an_attempt(job);
            let ended = u64::try_from(story.ended.len()).unwrap_or(u64::MAX);
            report.require(tasks.contains(&ended), Rule::AttemptEvents, &key, || {
                let (fewest, most) = (tasks.start(), tasks.end());
                format!(
                    "it is over, and the end of {ended} of its {fewest} to {most} tasks was told"
                )
            });
        }
    }
}

/// How many tasks an attempt may have had that nobody remembers: gangs may start with fewer than they want.
fn tasks_of_an_attempt(job: &Job) -> RangeInclusive<u64> {
    if !job.spec.gang {
        return 1..=1;
    }
    let fewest =
        { job.spec.groups.iter() }.map(|group| group.layout.count_min.unwrap_or(group.count));
    fewest.map(u64::from).sum()..=job.spec.tasks()
}

fn compare_tasks(attempt: &Attempt, key: Key, story: &Story, report: &mut Report) {
    for run in &attempt.tasks {
        let started = story.started.contains(&run.task);
        let ended = story.ended.contains(&run.task);
        let may_have_started = match run.phase {
            TaskPhase::Assigned => !started,
            TaskPhase::Running => started,
            _ => true,
        };
        report.require(
            ended == run.phase.is_terminal() && may_have_started,
            Rule::AttemptEvents,
            &key,
            || {
                let (task, phase) = (run.task, run.phase);
                format!("task {task} is {phase:?}; told: start {started}, end {ended}")
            },
        );
    }
    report.require(
        story.is_stopping == attempt.stop.is_some(),
        Rule::AttemptEvents,
        &key,
        || "whether it was told to stop is not what was told".to_owned(),
    );
}
