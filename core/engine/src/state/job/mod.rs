//! Jobs, their units, attempts and checkpoints.

pub(super) mod checkpoint;
pub(super) mod dependencies;
pub(super) mod membership;
pub(super) mod pauses;
pub(super) mod placement_class;
pub(super) mod run_times;

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use muster_model::command::{AllocationBasis, Exit, StopReason, TaskPlacement, Victim};
use muster_model::desired::RestartReason;
use muster_model::health::Attribution;
use muster_model::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, LeadershipEpoch, PipelineId, Revision, TaskIndex,
    UnitIndex,
};
use muster_model::job::{
    Barrier, CancelRequest, Checkpoint, Ledger, Removal, StopOrder, Suspension, UnitCounts,
};
use muster_model::lifecycle::{JobPhase, TaskPhase, UnitPhase};
use muster_model::limits;
use muster_model::spec::{JobSpec, SuspendMode};
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

use crate::state::{Membership, Pause};

/// A job and its history.
///
/// An array of 100,000 waiting tasks is one record: a unit gets an entry in `units` only once it has a
/// history; units from `first_untouched` on have none and are waiting, or were cancelled with the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its id: the revision of its submission.
    pub id: JobId,
    /// The specification as submitted.
    pub spec: Arc<JobSpec>,
    /// The pipeline it belongs to, if any.
    pub pipeline: Option<Arc<PipelineMark>>,
    /// Time of acceptance.
    pub submitted_at: TimeMs,
    /// Its phase.
    pub phase: JobPhase,
    /// Time of its end.
    pub finished_at: Option<TimeMs>,
    /// Human-readable reason of a failure; set by the first unit that fails, empty otherwise.
    pub finish_reason: String,
    /// The request to cancel it.
    pub cancel: Option<CancelRequest>,
    /// The suspension in force, if any.
    pub suspension: Option<Suspension>,
    /// Units with a history.
    pub units: OrdMap<UnitIndex, Arc<Unit>>,
    /// The first unit without a history; none of the later ones has one either.
    pub first_untouched: UnitIndex,
    /// Units with a history that wait again.
    pub requeued: OrdSet<UnitIndex>,
    /// Number of units in each phase.
    pub counts: UnitCounts,
    /// GPU time by use.
    pub ledger: Ledger,
}

/// A job's reference to its pipeline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PipelineMark {
    /// Id of the pipeline.
    pub id: PipelineId,
    /// Name of the pipeline.
    pub name: String,
}

/// The unit of placement: a gang, or one independent task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Its phase.
    pub phase: UnitPhase,
    /// Number of attempts, including the current one.
    pub attempts: u32,
    /// Number of failures charged to the job.
    pub failures: u32,
    /// End of its back-off.
    pub not_before: TimeMs,
    /// Reason for the next (or the current) attempt.
    pub restart_reason: RestartReason,
    /// The current attempt, while it holds resources.
    pub attempt: Option<Arc<Attempt>>,
    /// Resources reserved for it while it waits or is moved.
    pub claim: Option<Arc<Claim>>,
    /// Past attempts, oldest first, at most `ATTEMPTS_KEPT_PER_UNIT_MAX`.
    pub past: Vec<PastAttempt>,
    /// Committed checkpoints, oldest first, at most `CHECKPOINTS_PER_JOB_MAX`.
    pub checkpoints: Vec<Checkpoint>,
    /// When it was last moved to make room for other work.
    pub moved_at: Option<TimeMs>,
    /// Consecutive retries in place; the current attempt is the last of them.
    pub local_retries: u32,
    /// Number of members swapped, over all attempts.
    pub swaps: u32,
    /// Consecutive attempts that failed without a newer checkpoint.
    pub without_progress: u32,
    /// Checkpoints whose folders a worker is ordered to remove, oldest first, at most `REMOVALS_PER_UNIT_MAX`.
    pub removals: Vec<Removal>,
}

impl Default for Unit {
    /// A waiting unit without a history.
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

/// Resources reserved for a unit that waits or is moved; no other work gets them, except work that ends
/// before `expected_at`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Revision of the command that made it.
    pub revision: Revision,
    /// Time of the claim.
    pub since: TimeMs,
    /// Target placement of the unit, in task order.
    pub tasks: Arc<[TaskPlacement]>,
    /// Allocation basis.
    pub allocation_basis: AllocationBasis,
    /// Attempts stopped for it; empty if it waits for other work to end on its own.
    pub victims: Vec<Victim>,
    /// When the resources are expected to be free; `None` if unknown.
    pub expected_at: Option<TimeMs>,
    /// Its role in defragmentation moves.
    pub purpose: Purpose,
}

/// Role of a claim in moves that defragment the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// No role: a reservation, or made for a preemption.
    #[default]
    Ordinary,
    /// Other units are moved to make room for it.
    Gathered {
        /// The attempts stopped for it, ascending.
        moved: Vec<Victim>,
        /// GPU-milliseconds of work lost by the moves.
        cost_gpu_ms: u64,
        /// GPU-milliseconds of waiting that the moves save its unit.
        gain_gpu_ms: u64,
    },
    /// The target of a moved unit, which may still be stopping elsewhere.
    Destination {
        /// The job that the move makes room for.
        job: JobId,
        /// The unit of that job.
        unit: UnitIndex,
    },
}

/// One run of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its fencing number.
    pub epoch: AttemptEpoch,
    /// Epoch of the leader that placed it.
    pub leader: LeadershipEpoch,
    /// Number of the attempt within the unit, from 1.
    pub number: u32,
    /// Time of placement.
    pub placed_at: TimeMs,
    /// Time at which all its tasks were running.
    pub running_at: Option<TimeMs>,
    /// Allocation basis of its resources.
    pub allocation_basis: AllocationBasis,
    /// The stop order in force, if any.
    pub stop: Option<StopOrder>,
    /// Its tasks in order; the position is the rank within the unit unless a place is vacant
    /// ([`Attempt::rank`]).
    pub tasks: Vec<TaskRun>,
    /// The task whose failure was committed first: it decides the outcome of the unit.
    pub decisive: Option<TaskIndex>,
    /// The start barrier of its tasks; `None` if they start independently.
    pub barrier: Option<Barrier>,
    /// History of its members; `None` until the first one leaves alone.
    pub membership: Option<Box<Membership>>,
    /// Intervals in which its tasks were paused by a suspension, in order; the open one is not included
    /// ([`Attempt::open_pause`]).
    pub pauses: Vec<Pause>,
}

/// One task of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRun {
    /// Index of the task.
    pub task: TaskIndex,
    /// Its host.
    pub host: HostId,
    /// Its GPUs.
    pub gpus: Vec<GpuUuid>,
    /// Its phase.
    pub phase: TaskPhase,
    /// Its exit, once ended.
    pub exit: Option<Exit>,
}

/// Record kept of an ended attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastAttempt {
    /// Its fencing number.
    pub epoch: AttemptEpoch,
    /// Its number.
    pub number: u32,
    /// Time of placement.
    pub placed_at: TimeMs,
    /// Time at which all its tasks were running.
    pub running_at: Option<TimeMs>,
    /// Time of its end.
    pub ended_at: TimeMs,
    /// Human-readable outcome: `succeeded`, `exit code 1 of task 3`, `GPU-… fell off the bus`.
    pub detail: String,
    /// Exit of the task that decided the outcome, if one did.
    pub exit: Option<Exit>,
    /// Its hosts in task order, without repetition.
    pub hosts: Vec<HostId>,
    /// The host that the next attempt should avoid: it could not start a task, or the failure is attributed
    /// to it.
    pub culprit: Option<HostId>,
    /// Attribution of the failure; `None` if it ended well or before attribution was enabled.
    pub attribution: Option<Arc<Attribution>>,
    /// GPUs held on each of these hosts: one bit per position in [`Host::gpus`](super::Host::gpus). Empty for
    /// attempts that ended before this was recorded.
    pub gpus: Vec<u128>,
    /// Replacement members present at the end, with their own fencing numbers, by task.
    pub members: Vec<(TaskIndex, AttemptEpoch)>,
}

impl Attempt {
    /// Returns the time from which its queue protects it from preemption.
    #[must_use]
    pub fn protected_since(&self) -> TimeMs {
        self.running_at.unwrap_or(self.placed_at)
    }

    /// Whether all its members are prepared and wait only for their release.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let waits = self.stop.is_none() && self.barrier.is_some_and(|it| it.released_at.is_none());
        // Tasks are mostly prepared in order, so the last one is checked first.
        let mut newest_first = self.tasks.iter().rev();
        waits && newest_first.all(|run| run.phase != TaskPhase::Assigned)
    }

    /// Returns the number of GPUs it holds.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        let gpus = self.tasks.iter().map(|run| run.gpus.len());
        u32::try_from(gpus.sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// Returns its run of a task.
    #[must_use]
    pub fn task(&self, task: TaskIndex) -> Option<&TaskRun> {
        self.position(task).map(|position| &self.tasks[position])
    }

    /// Returns the position of a task in `tasks`, which ascend; a partial gang has gaps.
    #[must_use]
    pub fn position(&self, task: TaskIndex) -> Option<usize> {
        let first = self.tasks.first()?.task.get();
        let guess = usize::try_from(task.get().checked_sub(first)?).ok()?;
        if self.tasks.get(guess).is_some_and(|run| run.task == task) {
            return Some(guess);
        }
        self.tasks.binary_search_by_key(&task, |run| run.task).ok()
    }

    /// Returns when and why the attempt is to be stopped on its own: its time limit (counted from placement,
    /// so that the end of its resource use is known), its start-up timeout, or the time its members may be
    /// incomplete. The first two do not count the time in which its tasks were paused. `None` if it is being
    /// stopped already, or has no such limit, or is paused.
    #[must_use]
    pub fn deadline(&self, job: &Job) -> Option<(TimeMs, StopReason)> {
        if self.stop.is_some() {
            return None;
        }
        let spec = &job.spec;
        let scheduling = &spec.scheduling;
        let is_paused = job.is_paused();
        let end = |period_ms: u64| {
            let at = self.placed_at.after(period_ms).after(self.paused_ms());
            (!is_paused).then_some(at)
        };
        let run_time = scheduling.run_time_ms_max.and_then(end);
        let of_barrier = self.barrier.map(|_| limits::ASSEMBLY_MS_MAX);
        let assembly = scheduling
            .assembly_ms_max
            .or(of_barrier)
            .filter(|_| self.running_at.is_none())
            .and_then(end);
        let reasons = [
            (run_time, StopReason::TimeLimit),
            (assembly, StopReason::AssemblyTimeout),
            (self.incomplete_until(spec), StopReason::NotSwapped),
        ];
        reasons
            .into_iter()
            .filter_map(|(at, reason)| Some((at?, reason)))
            .min_by_key(|(at, _)| *at)
    }

    /// Returns its hosts in task order, without repetition.
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
    /// Returns the record of a unit; `None` for a unit without a history, although it exists.
    #[must_use]
    pub fn unit(&self, unit: UnitIndex) -> Option<&Unit> {
        self.units.get(&unit).map(Arc::as_ref)
    }

    /// Whether it was skipped because a dependency did not end as required: no unit was ever placed.
    #[must_use]
    pub fn is_skipped(&self) -> bool {
        self.phase == JobPhase::Failed
            && self.units.is_empty()
            && !self.spec.lifecycle.after.is_empty()
    }

    /// Whether the job has a unit with this index.
    #[must_use]
    pub fn has_unit(&self, unit: UnitIndex) -> bool {
        u64::from(unit.get()) < self.spec.units()
    }

    /// Returns the phase of a unit, if the job has it.
    #[must_use]
    pub fn unit_phase(&self, unit: UnitIndex) -> Option<UnitPhase> {
        self.has_unit(unit).then(|| {
            self.unit(unit)
                .map_or(self.untouched_phase(), |known| known.phase)
        })
    }

    /// Whether its running processes are paused in place.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.suspension.is_some() && self.spec.lifecycle.suspend == SuspendMode::Keep
    }

    /// Whether it has waiting units and is not suspended.
    #[must_use]
    pub const fn wants_room(&self) -> bool {
        self.counts.waiting > 0 && self.suspension.is_none()
    }

    /// Returns the phase of all units without a history.
    #[must_use]
    pub const fn untouched_phase(&self) -> UnitPhase {
        if self.cancel.is_some() {
            UnitPhase::Cancelled
        } else if self.phase.is_terminal() {
            // The job failed before any of it ran: a dependency did not end as required.
            UnitPhase::Failed
        } else {
            UnitPhase::Waiting
        }
    }

    /// Returns the task indexes of a unit, as a half-open range.
    #[must_use]
    pub fn tasks_of(&self, unit: UnitIndex) -> std::ops::Range<u32> {
        if self.spec.gang {
            0..u32::try_from(self.spec.tasks()).unwrap_or(u32::MAX)
        } else {
            unit.get()..unit.get() + 1
        }
    }

    /// Whether the maximum number of its units hold resources at once.
    #[must_use]
    pub fn is_at_once_max(&self) -> bool {
        let max = self.spec.lifecycle.tasks_at_once_max;
        max.is_some_and(|max| self.counts.active() >= u64::from(max))
    }

    /// Returns the waiting units, lowest index first: those with a history, then the untouched ones.
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
