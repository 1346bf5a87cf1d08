//! Where a task's gang meets, which changes while the task runs when another member is swapped.

use muster_core::desired::Rendezvous;

use super::Supervisor;
use crate::hostfile;
use crate::protocol::GangNotice;
use crate::spec::TaskSpec;

/// Where a gang meets.
#[derive(Debug)]
pub(super) struct Gang {
    place: Rendezvous,
    /// Whether that is not where the task's environment says.
    has_moved: bool,
}

impl Gang {
    /// Where the gang of a task is to meet that has not begun.
    pub(super) fn of(spec: &TaskSpec) -> Self {
        Self {
            place: spec.assignment.rendezvous(),
            has_moved: false,
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
    /// The gang meets elsewhere: renews what the task can read, and tells who wants to hear it.
    pub(super) fn renew(&mut self, place: Rendezvous) {
        if place == self.gang.place {
            return;
        }
        if let Err(error) = hostfile::write(&place.hosts, self.directory) {
            // Whoever reads the old one waits for a host that is gone.
            self.broken = Some(error);
        }
        self.connections.tell_gang(GangNotice::from(&place));
        self.gang = Gang {
            place,
            has_moved: true,
        };
    }
}
