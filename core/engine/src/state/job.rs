//! Jobs, their units, attempts and checkpoints.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use muster_model::command::{Exit, Standing, StopCause, StopReason, TaskPlacement, Victim};
use muster_model::desired::RestartReason;
use muster_model::health::Blame;
use muster_model::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, LeadershipEpoch, PipelineId, Revision, TaskIndex,
    UnitIndex,
};
use muster_model::lifecycle::{JobPhase, TaskPhase, UnitPhase};
use muster_model::limits;
use muster_model::spec::{JobSpec, SuspendMode};
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

use crate::state::{Checkpoint, Halt, Ledger, Membership, Removal, UnitCounts};

/// A job and everything that became of it.
///
/// An array of 100,000 waiting tasks is one record: a unit gets an entry in `units` only once it has a
/// history; those from `first_untouched` on have none and are waiting, or were cancelled if the job was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its id: the revision of its submission.
    pub id: JobId,
    /// What was asked for.
    pub spec: Arc<JobSpec>,
    /// The pipeline that it is a part of, if it is.
    pub pipeline: Option<Arc<PipelineMark>>,
    /// When it was accepted.
    pub submitted_at: TimeMs,
    /// Where it stands.
    pub phase: JobPhase,
    /// When it reached its end.
    pub finished_at: Option<TimeMs>,
    /// Why it ended badly, for people; set by the first unit that fails, empty otherwise.
    pub finish_reason: String,
    /// Who asked for its end.
    pub cancel: Option<CancelRequest>,
    /// Who suspended it, while it is.
    pub suspension: Option<Suspension>,
    /// Units with a history.
    pub units: OrdMap<UnitIndex, Arc<Unit>>,
    /// The first unit without a history; all after it have none either.
    pub first_untouched: UnitIndex,
    /// Units that have a history and wait again.
    pub requeued: OrdSet<UnitIndex>,
    /// How many units are in each phase.
    pub counts: UnitCounts,
    /// Where the time of its GPUs went.
    pub ledger: Ledger,
}

/// What a job knows of its pipeline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PipelineMark {
    /// Which one.
    pub id: PipelineId,
    /// Its name.
    pub name: String,
}

/// Who asked for a job's end, when and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequest {
    /// Who.
    pub author: String,
    /// Why; may be empty.
    pub reason: String,
    /// When.
    pub at: TimeMs,
}

/// Who suspended a job, when and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    /// Who.
    pub author: String,
    /// Why; may be empty.
    pub reason: String,
    /// When.
    pub at: TimeMs,
}

/// What is placed as one: a gang, or one independent task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Where it stands.
    pub phase: UnitPhase,
    /// Attempts so far, the current one included.
    pub attempts: u32,
    /// Failures of the job's own doing so far.
    pub failures: u32,
    /// It waits at least until then.
    pub not_before: TimeMs,
    /// Why the next attempt (or the current one) is run.
    pub restart_reason: RestartReason,
    /// The current attempt, while it holds resources.
    pub attempt: Option<Arc<Attempt>>,
    /// What is reserved for it, while it waits, or is moved there.
    pub claim: Option<Arc<Claim>>,
    /// Past attempts, oldest first, at most `ATTEMPTS_KEPT_PER_UNIT_MAX`.
    pub past: Vec<PastAttempt>,
    /// Committed checkpoints, oldest first, at most `CHECKPOINTS_PER_JOB_MAX`.
    pub checkpoints: Vec<Checkpoint>,
    /// When it was last moved to make room for others.
    pub moved_at: Option<TimeMs>,
    /// Attempts in a row that were begun in place of one that failed; the current one is the last of them.
    pub local_retries: u32,
    /// Members that were swapped so far, over all attempts.
    pub swaps: u32,
    /// Attempts in a row that failed without a newer checkpoint.
    pub without_progress: u32,
    /// Checkpoints whose folders a worker is told to remove, oldest first, at most `REMOVALS_TOLD_MAX`.
    pub removals: Vec<Removal>,
}

impl Default for Unit {
    /// A unit that waits and has no history.
    fn default() -> Self {
        Self {
            phase: UnitPhase::Waiting,
            attempts: 0,
            failures: 0,
            not_before: TimeMs::default(),
            restart_reason: RestartReason::First,
            attempt: None,
            claim: None,
            past: Vec::new(),
            checkpoints: Vec::new(),
            moved_at: None,
            local_retries: 0,
            swaps: 0,
            without_progress: 0,
            removals: Vec::new(),
        }
    }
}

/// Resources reserved for a unit that waits or is moved; nobody else gets them, except work that ends before `expected_at`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The command that made it.
    pub revision: Revision,
    /// When it was made.
    pub since: TimeMs,
    /// Where the unit will run, in task order.
    pub tasks: Arc<[TaskPlacement]>,
    /// On what ground.
    pub standing: Standing,
    /// Attempts that were stopped for it; empty if it waits for others to end by themselves.
    pub victims: Vec<Victim>,
    /// When the resources should be free; none if nobody can tell.
    pub expected_at: Option<TimeMs>,
    /// What part it has in moves.
    pub purpose: Purpose,
}

/// What part a claim has in moves that make room in one piece.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// None: it is a reservation, or is made for a preemption.
    #[default]
    Ordinary,
    /// Others are moved to make its room.
    Gathered {
        /// The attempts that were stopped for it, ascending.
        moved: Vec<Victim>,
        /// GPU-milliseconds that the moves lose.
        cost_gpu_ms: u64,
        /// GPU-milliseconds that its unit would have waited longer without them.
        gain_gpu_ms: u64,
    },
    /// It is the place that its unit is moved to; the unit may still be stopping elsewhere.
    Destination {
        /// The job for which it is moved.
        job: JobId,
        /// The unit of that.
        unit: UnitIndex,
    },
}

/// One run of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its fencing number.
    pub epoch: AttemptEpoch,
    /// The leader that placed it.
    pub leader: LeadershipEpoch,
    /// Counts the unit's attempts from 1.
    pub number: u32,
    /// When it was placed.
    pub placed_at: TimeMs,
    /// When all its tasks ran.
    pub running_at: Option<TimeMs>,
    /// On what ground it holds its resources.
    pub standing: Standing,
    /// Why and since when it is being stopped.
    pub stop: Option<StopOrder>,
    /// Its tasks in order; the position is the rank within the unit, as long as no place is vacant ([`Attempt::rank`]).
    pub tasks: Vec<TaskRun>,
    /// The task whose bad end was committed first: it decides what becomes of the unit.
    pub decisive: Option<TaskIndex>,
    /// What its tasks wait for before they begin; none if they begin one by one.
    pub barrier: Option<Barrier>,
    /// What became of its members one by one; none before the first of them leaves alone.
    pub membership: Option<Box<Membership>>,
    /// When its tasks stood still because their job was suspended, in order; the time since they last did so is not among
    /// them ([`Attempt::open_halt`]).
    pub halts: Vec<Halt>,
}

/// What the members of a gang wait for: that all of them are prepared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    /// The port that rank 0's host keeps free for them to meet on; none before it is known.
    pub master_port: Option<u16>,
    /// When they were let go; none before.
    pub released_at: Option<TimeMs>,
}

/// An attempt's order to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopOrder {
    /// Why.
    pub reason: StopReason,
    /// What speaks for it ([`StopCause::detail`]).
    pub detail: String,
    /// Since when.
    pub at: TimeMs,
    /// Milliseconds that tasks get between being asked and being killed.
    pub grace_ms: u64,
}

impl StopOrder {
    /// An order of now.
    #[must_use]
    pub fn new(cause: StopCause, at: TimeMs, grace_ms: u64) -> Self {
        let StopCause { reason, detail } = cause;
        Self {
            reason,
            detail,
            at,
            grace_ms,
        }
    }

    /// What happened by it, with what speaks for it.
    #[must_use]
    pub fn explained(&self, what: &str) -> String {
        let Self { reason, detail, .. } = self;
        if detail.is_empty() {
            return what.to_owned();
        }
        format!("{what}{}{detail}", reason.joint())
    }

    /// Why it was given.
    #[must_use]
    pub fn cause(&self) -> StopCause {
        StopCause::new(self.reason.clone(), self.detail.clone())
    }
}

/// One task of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRun {
    /// Which task.
    pub task: TaskIndex,
    /// Its host.
    pub host: HostId,
    /// Its GPUs.
    pub gpus: Vec<GpuUuid>,
    /// Where it stands.
    pub phase: TaskPhase,
    /// How it ended, once it did.
    pub exit: Option<Exit>,
}

/// What is remembered of an attempt that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastAttempt {
    /// Its epoch.
    pub epoch: AttemptEpoch,
    /// Its number.
    pub number: u32,
    /// When it was placed.
    pub placed_at: TimeMs,
    /// When all its tasks ran.
    pub running_at: Option<TimeMs>,
    /// When it ended.
    pub ended_at: TimeMs,
    /// How, for people: `succeeded`, `exit code 1 of task 3`, `GPU-… fell off the bus`.
    pub detail: String,
    /// Exit of the task that decided the end, if one did.
    pub exit: Option<Exit>,
    /// Hosts it ran on, in task order, without repetition.
    pub hosts: Vec<HostId>,
    /// The host that its successor had better avoid: it could not start a task, or something of it is to blame.
    pub culprit: Option<HostId>,
    /// Whose fault the end was; none if it ended well, or before the cluster asked.
    pub blame: Option<Arc<Blame>>,
    /// What it held of each of these hosts: the GPUs at these positions in [`Host::gpus`](super::Host::gpus), one bit each.
    /// Empty for what ended before this was kept.
    pub gpus: Vec<u128>,
    /// Members that were there in the end under numbers of their own, by task: they came in place of others.
    pub members: Vec<(TaskIndex, AttemptEpoch)>,
}

impl Attempt {
    /// Since when its queue protects it from preemption.
    #[must_use]
    pub fn protected_since(&self) -> TimeMs {
        self.running_at.unwrap_or(self.placed_at)
    }

    /// Whether its members wait only to be let go: all of them are prepared.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let waits = self.stop.is_none() && self.barrier.is_some_and(|it| it.released_at.is_none());
        // Tasks are mostly prepared in order, so the last one is the one to look at first.
        let mut newest_first = self.tasks.iter().rev();
        waits && newest_first.all(|run| run.phase != TaskPhase::Assigned)
    }

    /// GPUs that it holds.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        let gpus = self.tasks.iter().map(|run| run.gpus.len());
        u32::try_from(gpus.sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// Its run of a task.
    #[must_use]
    pub fn task(&self, task: TaskIndex) -> Option<&TaskRun> {
        self.position(task).map(|position| &self.tasks[position])
    }

    /// Where a task stands in `tasks`, which ascend; of a partial gang some are missing.
    #[must_use]
    pub fn position(&self, task: TaskIndex) -> Option<usize> {
        let first = self.tasks.first()?.task.get();
        let guess = usize::try_from(task.get().checked_sub(first)?).ok()?;
        if self.tasks.get(guess).is_some_and(|run| run.task == task) {
            return Some(guess);
        }
        self.tasks.binary_search_by_key(&task, |run| run.task).ok()
    }

    /// When it is to be stopped by itself, and why: it has run as long as its job allows (counted from its placement,
    /// so that the end of its resources' use is known), its members did not all start in time, or are not complete for
    /// longer than they may be. None if it is being stopped already, or there is no such limit.
    #[must_use]
    pub fn deadline(&self, spec: &JobSpec) -> Option<(TimeMs, StopReason)> {
        if self.stop.is_some() {
            return None;
        }
        let scheduling = &spec.scheduling;
        let end = |period_ms: u64| self.placed_at.after(period_ms);
        let run_time = scheduling.run_time_ms_max.map(end);
        let of_barrier = self.barrier.map(|_| limits::ASSEMBLY_MS_MAX);
        let assembly = scheduling
            .assembly_ms_max
            .or(of_barrier)
            .filter(|_| self.running_at.is_none())
            .map(end);
        let reasons = [
            (run_time, StopReason::RunTime),
            (assembly, StopReason::Assembly),
            (self.incomplete_until(spec), StopReason::NotSwapped),
        ];
        reasons
            .into_iter()
            .filter_map(|(at, reason)| Some((at?, reason)))
            .min_by_key(|(at, _)| *at)
    }

    /// Its hosts in task order, without repetition.
    #[must_use]
    pub fn hosts(&self) -> Vec<HostId> {
        if let [task] = self.tasks.as_slice() {
            return vec![task.host];
        }
        let mut seen = BTreeSet::new();
        self.tasks
            .iter()
            .map(|task| task.host)
            .filter(|host| seen.insert(*host))
            .collect()
    }
}

impl Job {
    /// A unit's record; one without a history is `None` although it exists.
    #[must_use]
    pub fn unit(&self, unit: UnitIndex) -> Option<&Unit> {
        self.units.get(&unit).map(Arc::as_ref)
    }

    /// Whether it ended because others did not end as it waited for: nothing of it was ever placed.
    #[must_use]
    pub fn is_skipped(&self) -> bool {
        self.phase == JobPhase::Failed
            && self.units.is_empty()
            && !self.spec.lifecycle.after.is_empty()
    }

    /// Whether the job has a unit of this index at all.
    #[must_use]
    pub fn has_unit(&self, unit: UnitIndex) -> bool {
        u64::from(unit.get()) < self.spec.units()
    }

    /// A unit's phase, if the job has it.
    #[must_use]
    pub fn unit_phase(&self, unit: UnitIndex) -> Option<UnitPhase> {
        self.has_unit(unit).then(|| {
            self.unit(unit)
                .map_or(self.untouched_phase(), |known| known.phase)
        })
    }

    /// Whether its running processes stand still where they are.
    #[must_use]
    pub fn stands_still(&self) -> bool {
        self.suspension.is_some() && self.spec.lifecycle.suspend == SuspendMode::Keep
    }

    /// Whether it has waiting units that are not kept back by a suspension.
    #[must_use]
    pub const fn wants_room(&self) -> bool {
        self.counts.waiting > 0 && self.suspension.is_none()
    }

    /// The phase of every unit without a history.
    #[must_use]
    pub const fn untouched_phase(&self) -> UnitPhase {
        if self.cancel.is_some() {
            UnitPhase::Cancelled
        } else if self.phase.is_terminal() {
            // The job failed before any of it ran: another one did not end as it must have.
            UnitPhase::Failed
        } else {
            UnitPhase::Waiting
        }
    }

    /// The task indexes that a unit consists of, as a half-open range.
    #[must_use]
    pub fn tasks_of(&self, unit: UnitIndex) -> std::ops::Range<u32> {
        if self.spec.gang {
            0..u32::try_from(self.spec.tasks()).unwrap_or(u32::MAX)
        } else {
            unit.get()..unit.get() + 1
        }
    }

    /// Whether as many of its units hold resources as may at a time.
    #[must_use]
    pub fn is_at_once_max(&self) -> bool {
        let max = self.spec.lifecycle.tasks_at_once_max;
        max.is_some_and(|max| self.counts.active() >= u64::from(max))
    }

    /// Units that wait, lowest index first: those with a history, then the untouched ones.
    pub fn waiting_units(&self) -> impl Iterator<Item = UnitIndex> + '_ {
        let end = if self.cancel.is_some() || self.phase.is_terminal() {
            0
        } else {
            self.spec.units()
        };
        let untouched = u64::from(self.first_untouched.get())..end;
        self.requeued
            .iter()
            .copied()
            .chain(untouched.filter_map(|index| u32::try_from(index).ok().map(UnitIndex)))
    }
}
