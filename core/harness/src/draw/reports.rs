//! Draws of task reports and gang releases.

use muster_model::command::{Command, Exit, TaskOutcome, TaskReport};
use muster_model::ids::{AttemptEpoch, JobId, TaskIndex, UnitIndex};
use muster_model::lifecycle::TaskPhase;
use muster_model::testing::{exit_with, start_error};

use crate::draw::Draw;

impl Draw<'_> {
    pub(super) fn report(&mut self) -> Command {
        let (job, unit, epoch, task, phase) = match self.active() {
            Some((job, unit, attempt)) => {
                let runs = attempt.tasks.iter().map(|run| (run.task, run.phase));
                let open = runs.filter(|(_, phase)| !phase.is_terminal()).collect();
                let (task, phase) = self
                    .pick(open)
                    .unwrap_or((TaskIndex(0), TaskPhase::Assigned));
                (job, unit, attempt.epoch_of(task), task, phase)
            }
            None => {
                let stale = AttemptEpoch(self.below(100));
                let job = self.job();
                (job, UnitIndex(0), stale, TaskIndex(0), TaskPhase::Running)
            }
        };
        let outcome = match phase {
            TaskPhase::Assigned if self.once_in(3) => self.prepared(),
            TaskPhase::Assigned | TaskPhase::Prepared if !self.once_in(5) => TaskOutcome::Started,
            _ => self.outcome(),
        };
        let stale = u64::from(self.once_in(30));
        Command::ReportTask(TaskReport {
            leader: self.leader(),
            job,
            unit,
            epoch: AttemptEpoch(epoch.get().saturating_sub(stale)),
            task,
            outcome,
        })
    }

    fn prepared(&mut self) -> TaskOutcome {
        let port = u16::try_from(20_000 + self.below(10_000)).ok();
        TaskOutcome::Prepared {
            master_port: port.filter(|_| self.once_in(2)),
        }
    }

    /// Mostly a gang that waits for its release.
    pub(super) fn release(&mut self) -> Command {
        let whole: Vec<_> = self.state.index.prepared_gangs.iter().copied().collect();
        let (job, unit, epoch) = match (self.pick(whole), self.active()) {
            (Some(gang), _) => {
                let attempt = self.state.attempt(gang);
                let epoch = attempt.map_or(AttemptEpoch(0), |attempt| attempt.epoch);
                (gang.job, gang.unit, epoch)
            }
            (None, Some((job, unit, attempt))) => (job, unit, attempt.epoch),
            (None, None) => (JobId(1), UnitIndex(0), AttemptEpoch(1)),
        };
        Command::ReleaseGang {
            leader: self.leader(),
            job,
            unit,
            epoch,
        }
    }

    fn outcome(&mut self) -> TaskOutcome {
        match self.below(20) {
            0 => TaskOutcome::Started,
            1 => TaskOutcome::Fenced,
            2 => TaskOutcome::Gone {
                detail: "its supervisor vanished".to_owned(),
            },
            3 => TaskOutcome::Exited(start_error("no such program")),
            4 => TaskOutcome::Exited(exit_with(75)),
            5 => TaskOutcome::Exited(exit_with(93)),
            6 => TaskOutcome::Exited(Exit {
                code: None,
                signal: Some(9),
                lease_expired: true,
                ..exit_with(0)
            }),
            7..11 => TaskOutcome::Exited(exit_with(1)),
            _ => TaskOutcome::Exited(exit_with(0)),
        }
    }
}
