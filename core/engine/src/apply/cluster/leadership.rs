//! Leadership changes, and the fencing of commands by leadership.

use muster_model::command::{Command, StopCause, StopReason};
use muster_model::event::EventKind;
use muster_model::ids::{LeadershipEpoch, ReplicaId, UnitId};
use muster_model::lifecycle::TaskPhase;
use muster_model::rejection::Rejection;

use crate::apply::Step;
use crate::state::{Answer, Attempt, Leadership, Recovery, RecoveryHold};

impl Step<'_> {
    /// Refuses a leader's command that is not from the current leadership.
    pub(in crate::apply) fn require_leader(&self, command: &Command) -> Result<(), Rejection> {
        let current = self.state.leadership.epoch;
        match command.leader() {
            Some(given) if given != current => Err(Rejection::StaleLeader { given, current }),
            _ => Ok(()),
        }
    }

    pub(in crate::apply) fn leadership_started(&mut self, replica: ReplicaId) -> Answer {
        let epoch = LeadershipEpoch(self.state.revision.get());
        self.state.leadership = Leadership {
            replica,
            epoch,
            since: self.state.time,
        };
        self.emit(EventKind::LeadershipStarted { replica, epoch });
        self.begin_hold();
        Answer::Began
    }

    /// Starts the hold of a group that continues the state of another one: jobs are held back until the
    /// leases of anything else that the old group started are over. Attempts that it had only just placed are
    /// stopped, since they may have been written off and started elsewhere.
    fn begin_hold(&mut self) {
        let Some(recovery) = self.state.recovery.filter(|it| it.hold.is_none()) else {
            return;
        };
        let began_at = self.state.time;
        let mut longest_ms = 0;
        let mut unconfirmed: Vec<UnitId> = Vec::new();
        for job in self
            .state
            .jobs
            .values()
            .filter(|job| !job.phase.is_terminal())
        {
            longest_ms = longest_ms.max(job.spec.partition_grace_ms);
            let units = job.units.iter();
            let placed =
                units.filter(|(_, unit)| unit.attempt.as_deref().is_some_and(is_unconfirmed));
            unconfirmed.extend(placed.map(|(unit, _)| UnitId::new(job.id, *unit)));
        }
        self.state.recovery = Some(Recovery {
            hold: Some(RecoveryHold {
                began_at,
                over_at: began_at.after(longest_ms),
            }),
            ..recovery
        });
        for unit in unconfirmed {
            let detail = "the cluster was rebuilt before its tasks were known to run";
            let cause = StopCause::new(StopReason::AssemblyTimeout, detail.to_owned());
            self.order_stop(unit, cause, 0);
        }
    }
}

/// Whether a task of an attempt is placed and its start was never reported.
fn is_unconfirmed(attempt: &Attempt) -> bool {
    let mut runs = attempt.tasks.iter();
    attempt.stop.is_none() && runs.any(|run| run.phase == TaskPhase::Assigned)
}
