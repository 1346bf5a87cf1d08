//! Where a task's gang meets, which changes while the task runs when another member is swapped.

use muster_model::desired::Rendezvous;
use muster_model::time::MonotonicMs;

use crate::hostfile;
use crate::limits::LEASE_TICK;
use crate::output::complain;
use crate::protocol::GangNotice;
use crate::spec::TaskSpec;
use crate::supervise::{Supervisor, milliseconds};

/// Where a gang meets.
#[derive(Debug)]
pub(super) struct Gang {
    place: Rendezvous,
    /// Whether that is not where the task's environment says.
    has_moved: bool,
    /// Where it is to meet as soon as the task can read so.
    next: Option<Move>,
}

/// A new place that the task has not heard of.
#[derive(Debug)]
struct Move {
    place: Rendezvous,
    /// When its file is written; at once if none. It could not be before.
    due: Option<MonotonicMs>,
}

impl Gang {
    /// Where the gang of a task is to meet that has not begun.
    pub(super) fn of(spec: &TaskSpec) -> Self {
        Self {
            place: spec.assignment.rendezvous(),
            has_moved: false,
            next: None,
        }
    }

    /// The task begins, with this port in its environment.
    pub(super) const fn begin(&mut self, master_port: u16) {
        self.place.master_port = master_port;
    }

    /// Where it meets, for who knows the task's environment; none if that says the same.
    pub(super) fn moved(&self) -> Option<GangNotice> {
        self.has_moved.then(|| GangNotice::from(&self.place))
    }
}

impl Supervisor<'_> {
    /// The gang meets elsewhere: [`Self::move_gang`] tells the task.
    pub(super) fn renew(&mut self, place: Rendezvous) {
        let is_news = place != self.gang.place;
        self.gang.next = is_news.then_some(Move { place, due: None });
    }

    /// Renews what the task can read of its gang, if that has moved, and then tells who wants to hear it. A file that cannot be
    /// replaced now is tried again: the task has the old place until then, which is no reason to end it.
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
                complain(&format!("where the gang meets is not told yet: {error}"));
            }
            next.due = Some(now.after(milliseconds(LEASE_TICK)));
            self.gang.next = Some(next);
            return;
        }
        self.connections.tell_gang(GangNotice::from(&next.place));
        self.gang.place = next.place;
        self.gang.has_moved = true;
    }
}
