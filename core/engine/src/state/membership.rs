//! The members of an attempt one by one: who came in place of whom, who leaves, and whose place is vacant. Only gangs whose
//! framework takes it have that (`Lifecycle::member_swap`).

use std::collections::BTreeMap;

use muster_model::command::TaskPlacement;
use muster_model::desired::RestartReason;
use muster_model::ids::{AttemptEpoch, TaskIndex};
use muster_model::limits;
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

use crate::state::{Attempt, StopOrder, TaskRun};

/// What became of an attempt's members since it was placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Members that came in place of others, by task.
    pub joined: BTreeMap<TaskIndex, Joined>,
    /// A member that is told to stop alone.
    pub leaving: Option<Leaving>,
    /// A member that is gone and whose place is not filled. At most one: what the gang loses beside it ends the attempt.
    pub vacancy: Option<Vacancy>,
    /// Swaps that followed each other while the gang got nowhere.
    pub swaps_in_a_row: u32,
    /// When the last member was swapped.
    pub swapped_at: Option<TimeMs>,
}

/// A member that came in place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// Its fencing number: the revision of the swap.
    pub epoch: AttemptEpoch,
    /// When it was placed.
    pub placed_at: TimeMs,
    /// When it ran.
    pub running_at: Option<TimeMs>,
    /// Why it is run (`MUSTER_RESTART_REASON`).
    pub reason: RestartReason,
}

/// A member that is told to stop while the others go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaving {
    /// Which one.
    pub task: TaskIndex,
    /// Why and since when.
    pub order: StopOrder,
}

/// A place in a running gang that nobody fills. It holds nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vacancy {
    /// The member's last run, with its end. What it held is given back.
    pub run: TaskRun,
    /// The fencing number that it had.
    pub epoch: AttemptEpoch,
    /// Since when.
    pub since: TimeMs,
    /// It is not filled before then.
    pub not_before: TimeMs,
    /// Why the next one will be run.
    pub reason: RestartReason,
    /// Whether it counts as a failure of the job's own once it is filled.
    pub charged: bool,
    /// How the member ended, for people.
    pub detail: String,
}

impl Attempt {
    /// The fencing number of one of its members: its own, unless that one came later.
    #[must_use]
    pub fn epoch_of(&self, task: TaskIndex) -> AttemptEpoch {
        self.joined(task).map_or(self.epoch, |joined| joined.epoch)
    }

    /// Whether a member that it has now bears this number.
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

    /// How a member came in place of another, if it did.
    #[must_use]
    pub fn joined(&self, task: TaskIndex) -> Option<&Joined> {
        self.membership.as_deref()?.joined.get(&task)
    }

    /// Members that bear numbers of their own, by task.
    #[must_use]
    pub fn late_members(&self) -> Vec<(TaskIndex, AttemptEpoch)> {
        let joined = self.membership.iter().flat_map(|it| &it.joined);
        joined.map(|(task, joined)| (*task, joined.epoch)).collect()
    }

    /// The member that is told to stop alone.
    #[must_use]
    pub fn leaving(&self) -> Option<&Leaving> {
        self.membership.as_deref()?.leaving.as_ref()
    }

    /// The place that nobody fills.
    #[must_use]
    pub fn vacancy(&self) -> Option<&Vacancy> {
        self.membership.as_deref()?.vacancy.as_ref()
    }

    /// The same while the attempt goes on, so that it may be filled.
    #[must_use]
    pub fn open_vacancy(&self) -> Option<&Vacancy> {
        self.vacancy().filter(|_| self.stop.is_none())
    }

    /// The member that came last and does not run yet.
    #[must_use]
    pub fn joining(&self) -> Option<(TaskIndex, &Joined)> {
        let mut joined = self.membership.as_deref()?.joined.iter();
        let open = joined.find(|(_, joined)| joined.running_at.is_none());
        open.map(|(task, joined)| (*task, joined))
    }

    /// Its members in order, the one whose place is vacant among them.
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = &TaskRun> {
        let vacant = self.vacancy().map(|vacancy| &vacancy.run);
        let place = vacant.map_or(0, |run| self.place_of(run.task));
        let (before, after) = self.tasks.split_at(place);
        before.iter().chain(vacant).chain(after)
    }

    /// The run of a task, also of one whose place is vacant.
    #[must_use]
    pub fn run_of(&self, task: TaskIndex) -> Option<&TaskRun> {
        let vacant = || {
            let vacancy = self.vacancy().filter(|vacancy| vacancy.run.task == task);
            vacancy.map(|vacancy| &vacancy.run)
        };
        self.task(task).or_else(vacant)
    }

    /// Where a task stands in `tasks`, or would.
    pub(crate) fn place_of(&self, task: TaskIndex) -> usize {
        self.tasks.partition_point(|run| run.task < task)
    }

    /// The rank of the member at a position in `tasks`: a vacant place keeps its own.
    #[must_use]
    pub fn rank(&self, position: usize) -> usize {
        let task = self.tasks.get(position).map(|run| run.task);
        let is_after = self
            .vacancy()
            .is_some_and(|vacancy| task.is_some_and(|task| task > vacancy.run.task));
        position + usize::from(is_after)
    }

    /// When it is ended because its members are not complete: a place was vacant for as long as it may be, or the member
    /// that took it did not start in time.
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

    /// Whether others of its members than this one have not ended: somebody goes on.
    pub(crate) fn has_others_than(&self, task: TaskIndex) -> bool {
        let mut others = self.tasks.iter().filter(|run| run.task != task);
        others.any(|run| !run.phase.is_terminal())
    }
}

impl TaskRun {
    /// Where it is.
    #[must_use]
    pub fn place(&self) -> TaskPlacement {
        TaskPlacement {
            task: self.task,
            host: self.host,
            gpus: self.gpus.clone(),
        }
    }
}
