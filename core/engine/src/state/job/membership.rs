//! Members of an attempt: replacements, leaving members and the vacant place. Only for gangs whose framework
//! supports it (`Lifecycle::member_swap`).

use std::collections::BTreeMap;

use muster_model::command::TaskPlacement;
use muster_model::desired::RestartReason;
use muster_model::ids::{AttemptEpoch, TaskIndex};
use muster_model::job::StopOrder;
use muster_model::limits;
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

use crate::state::{Attempt, TaskRun};

/// Changes of an attempt's members since it was placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Replacement members, by task.
    pub joined: BTreeMap<TaskIndex, Joined>,
    /// A member ordered to stop alone.
    pub leaving: Option<Leaving>,
    /// The vacant place of a member that is gone. At most one: losing a second member ends the attempt.
    pub vacancy: Option<Vacancy>,
    /// Consecutive swaps without progress of the gang.
    pub swaps_in_a_row: u32,
    /// When the last member was swapped.
    pub swapped_at: Option<TimeMs>,
}

/// A replacement member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// Its fencing number: the revision of the swap.
    pub epoch: AttemptEpoch,
    /// Time of placement.
    pub placed_at: TimeMs,
    /// When it began running.
    pub running_at: Option<TimeMs>,
    /// Reason of its run (`MUSTER_RESTART_REASON`).
    pub reason: RestartReason,
}

/// A member ordered to stop while the others continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaving {
    /// Its task.
    pub task: TaskIndex,
    /// Its stop order.
    pub order: StopOrder,
}

/// A vacant place in a running gang. It holds no resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vacancy {
    /// The last run of the member, with its exit. Its resources are released.
    pub run: TaskRun,
    /// The fencing number of the member.
    pub epoch: AttemptEpoch,
    /// Start of the vacancy.
    pub since: TimeMs,
    /// Earliest time at which it may be filled.
    pub not_before: TimeMs,
    /// Restart reason of the replacement.
    pub reason: RestartReason,
    /// Whether filling it counts as a failure charged to the job.
    pub charged: bool,
    /// Human-readable end of the member.
    pub detail: String,
}

impl Attempt {
    /// Returns the fencing number of a member: its own if it is a replacement, else the attempt's.
    #[must_use]
    pub fn epoch_of(&self, task: TaskIndex) -> AttemptEpoch {
        self.joined(task).map_or(self.epoch, |joined| joined.epoch)
    }

    /// Whether a current member has this fencing number.
    #[must_use]
    pub fn has_member_of(&self, epoch: AttemptEpoch) -> bool {
        match &self.membership {
            None => epoch == self.epoch,
            Some(_) => {
                let mut runs = self.tasks.iter();
                runs.any(|run| self.epoch_of(run.task) == epoch)
            }
        }
    }

    /// Returns the replacement record of a member, if it is a replacement.
    #[must_use]
    pub fn joined(&self, task: TaskIndex) -> Option<&Joined> {
        self.membership.as_deref()?.joined.get(&task)
    }

    /// Returns the members with fencing numbers of their own, by task.
    #[must_use]
    pub fn late_members(&self) -> Vec<(TaskIndex, AttemptEpoch)> {
        let joined = self.membership.iter().flat_map(|it| &it.joined);
        joined.map(|(task, joined)| (*task, joined.epoch)).collect()
    }

    /// Returns the member ordered to stop alone.
    #[must_use]
    pub fn leaving(&self) -> Option<&Leaving> {
        self.membership.as_deref()?.leaving.as_ref()
    }

    /// Returns the vacant place.
    #[must_use]
    pub fn vacancy(&self) -> Option<&Vacancy> {
        self.membership.as_deref()?.vacancy.as_ref()
    }

    /// Returns the vacant place if the attempt continues, so that it may be filled.
    #[must_use]
    pub fn open_vacancy(&self) -> Option<&Vacancy> {
        self.vacancy().filter(|_| self.stop.is_none())
    }

    /// Returns the newest replacement that does not run yet.
    #[must_use]
    pub fn joining(&self) -> Option<(TaskIndex, &Joined)> {
        let mut joined = self.membership.as_deref()?.joined.iter();
        let open = joined.find(|(_, joined)| joined.running_at.is_none());
        open.map(|(task, joined)| (*task, joined))
    }

    /// Returns its members in order, including the one whose place is vacant.
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = &TaskRun> {
        let vacant = self.vacancy().map(|vacancy| &vacancy.run);
        let place = vacant.map_or(0, |run| self.place_of(run.task));
        let (before, after) = self.tasks.split_at(place);
        before.iter().chain(vacant).chain(after)
    }

    /// Returns the run of a task, including one whose place is vacant.
    #[must_use]
    pub fn run_of(&self, task: TaskIndex) -> Option<&TaskRun> {
        let vacant = || {
            let vacancy = self.vacancy().filter(|vacancy| vacancy.run.task == task);
            vacancy.map(|vacancy| &vacancy.run)
        };
        self.task(task).or_else(vacant)
    }

    /// Returns the position of a task in `tasks`, or its insertion point.
    pub(crate) fn place_of(&self, task: TaskIndex) -> usize {
        self.tasks.partition_point(|run| run.task < task)
    }

    /// Returns the rank of the member at a position in `tasks`: a vacant place keeps its rank.
    #[must_use]
    pub fn rank(&self, position: usize) -> usize {
        let task = self.tasks.get(position).map(|run| run.task);
        let is_after = self
            .vacancy()
            .is_some_and(|vacancy| task.is_some_and(|task| task > vacancy.run.task));
        position + usize::from(is_after)
    }

    /// Returns when it is ended for incomplete members: a place was vacant too long, or its replacement did
    /// not start in time.
    pub fn incomplete_until(&self, spec: &JobSpec) -> Option<TimeMs> {
        let vacant = self.vacancy();
        let vacant = vacant.map(|vacancy| vacancy.since.after(limits::VACANCY_MS_MAX));
        let assembly_ms = spec.scheduling.assembly_ms_max;
        let joining = self.joining().map(|(_, joined)| {
            let assembly_ms = assembly_ms.unwrap_or(limits::ASSEMBLY_MS_MAX);
            joined.placed_at.after(assembly_ms)
        });
        [vacant, joining].into_iter().flatten().min()
    }

    /// Whether any member other than this one has not ended.
    pub(crate) fn has_others_than(&self, task: TaskIndex) -> bool {
        let mut others = self.tasks.iter().filter(|run| run.task != task);
        others.any(|run| !run.phase.is_terminal())
    }
}

impl TaskRun {
    /// Returns the placement of the task.
    #[must_use]
    pub fn place(&self) -> TaskPlacement {
        TaskPlacement {
            task: self.task,
            host: self.host,
            gpus: self.gpus.clone(),
        }
    }
}
