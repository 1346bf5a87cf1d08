//! Rendezvous of a task's gang, which changes while the task runs when another member is replaced.

use muster_model::desired::Rendezvous;
use muster_model::time::MonotonicMs;

use crate::limits::LEASE_TICK;
use crate::link::protocol::GangNotice;
use crate::output::log_error;
use crate::supervise::{Supervisor, milliseconds};
use crate::task::hostfile;
use crate::task::spec::TaskSpec;

/// Rendezvous of a gang.
#[derive(Debug)]
pub(super) struct Gang {
    rendezvous: Rendezvous,
    /// Whether it differs from the task's environment.
    has_moved: bool,
    /// Pending new rendezvous, effective once the task can read it.
    next: Option<Move>,
}

/// A new rendezvous that the task has not been notified of.
#[derive(Debug)]
struct Move {
    place: Rendezvous,
    /// When to write its file; at once if `None`, later after a failure.
    due: Option<MonotonicMs>,
}

impl Gang {
    /// Rendezvous of a task that has not begun.
    pub(super) fn of(spec: &TaskSpec) -> Self {
        Self {
            rendezvous: spec.assignment.rendezvous(),
            has_moved: false,
            next: None,
        }
    }

    /// Begins the task, with this port in its environment.
    pub(super) const fn begin(&mut self, master_port: u16) {
        self.rendezvous.master_port = master_port;
    }

    /// The current rendezvous if it differs from the task's environment.
    pub(super) fn moved(&self) -> Option<GangNotice> {
        self.has_moved.then(|| GangNotice::from(&self.rendezvous))
    }
}

impl Supervisor<'_> {
    /// Moves the rendezvous: [`Self::move_gang`] notifies the task.
    pub(super) fn renew(&mut self, place: Rendezvous) {
        let is_changed = place != self.gang.rendezvous;
        self.gang.next = is_changed.then_some(Move { place, due: None });
    }

    /// Rewrites the host file if the rendezvous has moved, and then notifies subscribers. A failed write is
    /// retried: the task has the old rendezvous until then, which is not a reason to end it.
    pub(super) fn move_gang(&mut self, now: MonotonicMs) {
        let Some(mut next) = self.gang.next.take() else {
            return;
        };
        if next.due.is_some_and(|due| now < due) {
            self.gang.next = Some(next);
            return;
        }
        if let Err(error) = hostfile::write(&next.place.hosts, self.directory) {
            if next.due.is_none() {
                log_error(&format!(
                    "publishing the gang's new rendezvous failed, will retry: {error}"
                ));
            }
            next.due = Some(now.after(milliseconds(LEASE_TICK)));
            self.gang.next = Some(next);
            return;
        }
        self.connections.notify_gang(GangNotice::from(&next.place));
        self.gang.rendezvous = next.place;
        self.gang.has_moved = true;
    }
}
