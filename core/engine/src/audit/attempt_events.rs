//! Events of each attempt: complete, in order, without repetition, and consistent with the state.
//!
//! Only attempts whose placement is among the kept events are checked: for others, older events are gone.
//!
//! A worker's report that a task runs before its gang was released is accepted, so a start may precede the
//! release.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use muster_model::event::EventKind;
use muster_model::ids::{AttemptEpoch, JobId, TaskIndex, UnitIndex};
use muster_model::lifecycle::TaskPhase;

use crate::audit::{Report, Rule};
use crate::state::{Attempt, Job, State, TaskRun, Unit};

/// Key of an attempt.
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

/// History of an attempt according to the events so far.
#[derive(Debug, Default)]
struct AttemptHistory {
    prepared: BTreeSet<TaskIndex>,
    started: BTreeSet<TaskIndex>,
    ended: BTreeSet<TaskIndex>,
    /// Training steps of its committed checkpoints.
    steps: BTreeSet<u64>,
    is_released: bool,
    is_running: bool,
    is_stopping: bool,
    is_over: bool,
    /// The member whose place is vacant.
    vacant: Option<TaskIndex>,
    /// For a replacement member: the epoch of its gang's attempt, and its task.
    member: Option<(AttemptEpoch, TaskIndex)>,
}

/// One step in the history of an attempt.
enum AttemptStep {
    Placed,
    Prepared(TaskIndex),
    Released,
    Started(TaskIndex),
    Running,
    Committed(u64),
    TaskEnded(TaskIndex),
    /// A member's place became vacant; with the epoch of the member.
    Vacated(TaskIndex, AttemptEpoch),
    /// The place was filled; with the epoch of the replacement.
    Swapped(TaskIndex, AttemptEpoch),
    Stopping,
    Over,
}

pub(super) fn check(state: &State, report: &mut Report) {
    let mut stories: BTreeMap<Key, AttemptHistory> = BTreeMap::new();
    for (_, events) in state.events.iter() {
        for event in events.iter() {
            if let Some((key, chapter)) = chapter_of(&event.kind) {
                read(&mut stories, key, &chapter, report);
            }
        }
    }
    for (key, story) in &stories {
        // For a job no longer kept, there is no state to compare with.
        if let Some(job) = state.job(key.job) {
            compare(job, *key, story, report);
        }
    }
}

fn chapter_of(kind: &EventKind) -> Option<(Key, AttemptStep)> {
    let (job, unit, epoch, chapter) = match kind {
        EventKind::AttemptPlaced {
            job, unit, epoch, ..
        } => (job, unit, epoch, AttemptStep::Placed),
        EventKind::GangReleased {
            job, unit, epoch, ..
        } => (job, unit, epoch, AttemptStep::Released),
        EventKind::AttemptRunning { job, unit, epoch } => (job, unit, epoch, AttemptStep::Running),
        EventKind::CheckpointCommitted {
            job,
            unit,
            epoch,
            step,
            ..
        } => (job, unit, epoch, AttemptStep::Committed(*step)),
        EventKind::AttemptStopping {
            job, unit, epoch, ..
        } => (job, unit, epoch, AttemptStep::Stopping),
        EventKind::AttemptEnded {
            job, unit, epoch, ..
        } => (job, unit, epoch, AttemptStep::Over),
        _ => return chapter_of_a_task(kind),
    };
    Some((key(*job, *unit, *epoch), chapter))
}

fn chapter_of_a_task(kind: &EventKind) -> Option<(Key, AttemptStep)> {
    let (job, unit, epoch, chapter) = match kind {
        EventKind::TaskPrepared {
            job,
            unit,
            epoch,
            task,
            ..
        } => (job, unit, epoch, AttemptStep::Prepared(*task)),
        EventKind::TaskStarted {
            job,
            unit,
            epoch,
            task,
            ..
        } => (job, unit, epoch, AttemptStep::Started(*task)),
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
        } => (job, unit, epoch, AttemptStep::TaskEnded(*task)),
        EventKind::MemberVacated {
            job,
            unit,
            epoch,
            task,
            member,
            ..
        } => (job, unit, epoch, AttemptStep::Vacated(*task, *member)),
        EventKind::MemberSwapped {
            job,
            unit,
            epoch,
            task,
            member,
            ..
        } => (job, unit, epoch, AttemptStep::Swapped(*task, *member)),
        _ => return None,
    };
    Some((key(*job, *unit, *epoch), chapter))
}

const fn key(job: JobId, unit: UnitIndex, epoch: AttemptEpoch) -> Key {
    Key { job, unit, epoch }
}

fn read(
    stories: &mut BTreeMap<Key, AttemptHistory>,
    key: Key,
    chapter: &AttemptStep,
    report: &mut Report,
) {
    if matches!(chapter, AttemptStep::Placed) {
        let earlier = stories.insert(key, AttemptHistory::default());
        report.require(earlier.is_none(), Rule::AttemptEvents, &key, || {
            "it was placed twice".to_owned()
        });
        return;
    }
    if let AttemptStep::Vacated(task, member) = chapter {
        read_vacancy(stories, key, *member, *task, report);
        return;
    }
    if let AttemptStep::Swapped(task, member) = chapter {
        read_swap(stories, key, *member, *task, report);
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
        AttemptStep::Placed | AttemptStep::Vacated(..) | AttemptStep::Swapped(..) => {}
        AttemptStep::Prepared(task) => {
            require(story.prepared.insert(*task), "a task was prepared twice");
            let has_begun = story.started.contains(task) || story.ended.contains(task);
            require(
                !has_begun && !story.is_released,
                "a task was prepared after its start, its end or the release",
            );
        }
        AttemptStep::Released => {
            require(!story.is_released, "it was released twice");
            require(!story.is_stopping, "it was released after its stop order");
            story.is_released = true;
        }
        AttemptStep::Committed(step) => {
            let is_newer = story.steps.last().is_none_or(|newest| newest < step);
            require(
                is_newer,
                "a checkpoint was committed twice, or after a later one",
            );
            story.steps.insert(*step);
        }
        AttemptStep::Started(task) => {
            let is_first = story.started.insert(*task) && !story.ended.contains(task);
            require(is_first, "a task started twice, or after its end");
        }
        AttemptStep::Running => {
            require(!story.is_running, "it was running twice");
            story.is_running = true;
        }
        AttemptStep::TaskEnded(task) => {
            require(story.ended.insert(*task), "a task ended twice");
        }
        AttemptStep::Stopping => {
            require(!story.is_stopping, "it was ordered to stop twice");
            story.is_stopping = true;
        }
        AttemptStep::Over => story.is_over = true,
    }
}

/// Reads a vacancy: the member's end was recorded before, under its epoch.
fn read_vacancy(
    stories: &mut BTreeMap<Key, AttemptHistory>,
    key: Key,
    member: AttemptEpoch,
    task: TaskIndex,
    report: &mut Report,
) {
    let of_member = Key {
        epoch: member,
        ..key
    };
    let ended = stories
        .get(&of_member)
        .map(|story| story.ended.contains(&task));
    let Some(story) = stories.get_mut(&key) else {
        return;
    };
    report.require(ended == Some(true), Rule::AttemptEvents, &key, || {
        format!("the place of task {task} is vacant without an event of its end")
    });
    let is_left_alone = !story.is_stopping && !story.is_over && story.is_running;
    report.require(
        story.vacant.is_none() && is_left_alone,
        Rule::AttemptEvents,
        &key,
        || format!("the place of task {task} is vacant in a gang that is not running and whole"),
    );
    story.vacant = Some(task);
}

/// Reads a swap: the member's place was vacant.
fn read_swap(
    stories: &mut BTreeMap<Key, AttemptHistory>,
    key: Key,
    member: AttemptEpoch,
    task: TaskIndex,
    report: &mut Report,
) {
    let Some(story) = stories.get_mut(&key) else {
        return;
    };
    let is_vacant = story.vacant.take() == Some(task);
    report.require(
        is_vacant && !story.is_stopping && !story.is_over,
        Rule::AttemptEvents,
        &key,
        || format!("a member was swapped in for task {task}, whose place was not vacant"),
    );
    let of_member = Key {
        epoch: member,
        ..key
    };
    let begun = AttemptHistory {
        member: Some((key.epoch, task)),
        ..AttemptHistory::default()
    };
    let earlier = stories.insert(of_member, begun);
    report.require(earlier.is_none(), Rule::AttemptEvents, &of_member, || {
        "its epoch was assigned twice".to_owned()
    });
}

/// Compares the history with the state.
fn compare(job: &Job, key: Key, story: &AttemptHistory, report: &mut Report) {
    let known = job.unit(key.unit);
    if let Some((gang, task)) = story.member {
        compare_member(known, key, gang, task, story, report);
        return;
    }
    compare_checkpoints(known, key, story, report);
    let current = known.and_then(|unit| unit.attempt.as_deref());
    let current = current.filter(|attempt| attempt.epoch == key.epoch);
    report.require(
        current.is_some() != story.is_over,
        Rule::AttemptEvents,
        &key,
        || match current {
            Some(_) => "it continues after an event of its end".to_owned(),
            None => "it is over without an event of its end".to_owned(),
        },
    );
    match current {
        Some(attempt) => compare_tasks(attempt, key, story, report),
        None => {
            let tasks = tasks_of_an_attempt(job);
            let ended = u64::try_from(story.ended.len()).unwrap_or(u64::MAX);
            report.require(tasks.contains(&ended), Rule::AttemptEvents, &key, || {
                let (fewest, most) = (tasks.start(), tasks.end());
                format!("it is over, with end events for {ended} of its {fewest} to {most} tasks")
            });
        }
    }
}

/// Checks that every known checkpoint of the attempt has an event.
fn compare_checkpoints(unit: Option<&Unit>, key: Key, story: &AttemptHistory, report: &mut Report) {
    let known = unit.map_or(&[][..], |unit| &unit.checkpoints);
    for checkpoint in known.iter().filter(|it| it.epoch == key.epoch) {
        let step = checkpoint.step;
        let has_event = story.steps.contains(&step);
        report.require(has_event, Rule::AttemptEvents, &key, || {
            format!("its checkpoint of step {step} has no event")
        });
    }
}

/// Returns the possible numbers of tasks of an attempt no longer kept: gangs may start with fewer than they
/// want.
fn tasks_of_an_attempt(job: &Job) -> RangeInclusive<u64> {
    if !job.spec.gang {
        return 1..=1;
    }
    let fewest = job
        .spec
        .groups
        .iter()
        .map(|group| group.layout.count_min.unwrap_or(group.count));
    fewest.map(u64::from).sum()..=job.spec.tasks()
}

/// Checks that a replacement member of the attempt `gang` is present or its end was recorded.
fn compare_member(
    unit: Option<&Unit>,
    key: Key,
    gang: AttemptEpoch,
    task: TaskIndex,
    story: &AttemptHistory,
    report: &mut Report,
) {
    let attempt = unit.and_then(|unit| unit.attempt.as_deref());
    let attempt = attempt.filter(|attempt| attempt.epoch == gang);
    let member = attempt.and_then(|attempt| {
        let joined = attempt.membership.as_deref()?.joined.get(&task)?;
        let run = attempt.tasks.iter().find(|run| run.task == task)?;
        (joined.epoch == key.epoch).then_some(run)
    });
    match member {
        Some(run) => compare_task(run, key, story, report),
        None => report.require(
            story.ended.contains(&task),
            Rule::AttemptEvents,
            &key,
            || format!("task {task} is gone without an event of its end"),
        ),
    }
}

fn compare_task(run: &TaskRun, key: Key, story: &AttemptHistory, report: &mut Report) {
    let prepared = story.prepared.contains(&run.task);
    let started = story.started.contains(&run.task);
    let ended = story.ended.contains(&run.task);
    let matches_events = match run.phase {
        TaskPhase::Assigned => !prepared && !started && !story.is_released,
        TaskPhase::Prepared => prepared && !started,
        TaskPhase::Running => started,
        _ => true,
    };
    report.require(
        ended == run.phase.is_terminal() && matches_events,
        Rule::AttemptEvents,
        &key,
        || {
            let (task, phase) = (run.task, run.phase);
            format!(
                "task {task} is {phase:?}; events: prepared {prepared}, start {started}, end {ended}"
            )
        },
    );
}

fn compare_tasks(attempt: &Attempt, key: Key, story: &AttemptHistory, report: &mut Report) {
    let membership = attempt.membership.as_deref();
    for run in &attempt.tasks {
        if membership.is_some_and(|membership| membership.joined.contains_key(&run.task)) {
            let ended = story.ended.contains(&run.task);
            report.require(ended, Rule::AttemptEvents, &key, || {
                format!(
                    "task {} has a replacement without an event of its end",
                    run.task
                )
            });
        } else {
            compare_task(run, key, story, report);
        }
    }
    let vacancy = membership.and_then(|membership| membership.vacancy.as_ref());
    let vacant = vacancy.map(|vacancy| vacancy.run.task);
    report.require(story.vacant == vacant, Rule::AttemptEvents, &key, || {
        format!(
            "the place of {vacant:?} is vacant, the events say {:?}",
            story.vacant
        )
    });
    let is_released = attempt
        .barrier
        .is_some_and(|barrier| barrier.released_at.is_some());
    report.require(
        story.is_released == is_released,
        Rule::AttemptEvents,
        &key,
        || "its release differs from the events".to_owned(),
    );
    report.require(
        story.is_stopping == attempt.stop.is_some(),
        Rule::AttemptEvents,
        &key,
        || "its stop order differs from the events".to_owned(),
    );
}
