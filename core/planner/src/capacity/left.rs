//! Free resources of one host within a round.

use muster_engine::feasibility::{Requester, Room};
use muster_model::host::Host;
use muster_model::ids::JobId;
use muster_model::topology::GpuMask;

use crate::capacity::Capacity;

/// Remaining resources of a host within a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remaining {
    /// CPUs, memory and task slots neither held nor claimed.
    pub(super) room: Room,
    /// GPUs neither held nor claimed.
    pub(super) free: GpuMask,
    /// GPUs given out in the round.
    pub(super) taken: GpuMask,
    /// Jobs placed on the host in the round.
    pub(super) newcomers: PlacedJobs,
}

/// Jobs placed on a host in the round.
#[derive(Clone, Copy, Debug)]
pub(super) enum PlacedJobs {
    None,
    One { job: JobId, exclusive: bool },
    Several,
}

impl Remaining {
    /// Whether the jobs placed in the round admit the unit.
    pub(super) fn admits(&self, requester: Requester<'_>) -> bool {
        match self.newcomers {
            PlacedJobs::None => true,
            PlacedJobs::One { job, exclusive } => {
                job == requester.job.id || (!exclusive && !requester.is_exclusive())
            }
            PlacedJobs::Several => !requester.is_exclusive(),
        }
    }

    /// Whether the round placed a task of the job here (possibly, if several jobs were placed).
    pub(super) fn holds(&self, job: JobId) -> bool {
        match self.newcomers {
            PlacedJobs::None => false,
            PlacedJobs::One { job: one, .. } => one == job,
            PlacedJobs::Several => true,
        }
    }

    /// Records that a unit is placed on the host.
    pub(super) fn enter(&mut self, requester: Requester<'_>) {
        self.newcomers = match self.newcomers {
            PlacedJobs::None => PlacedJobs::One {
                job: requester.job.id,
                exclusive: requester.is_exclusive(),
            },
            PlacedJobs::One { job, .. } if job != requester.job.id => PlacedJobs::Several,
            known => known,
        };
    }
}

impl Capacity<'_> {
    pub(super) fn left_of(&self, host: &Host) -> Remaining {
        self.left
            .get(&host.id)
            .copied()
            .unwrap_or_else(|| Remaining {
                room: self.unclaimed_room(host),
                free: self.unclaimed_gpus(host),
                taken: GpuMask::default(),
                newcomers: PlacedJobs::None,
            })
    }

    /// CPUs, memory and task slots of a host, found without looking at its GPUs.
    pub(crate) fn room_of(&self, host: &Host) -> Room {
        let known = self.left.get(&host.id);
        known.map_or_else(|| self.unclaimed_room(host), |left| left.room)
    }

    fn unclaimed_room(&self, host: &Host) -> Room {
        let room = Room::unheld(self.state, host);
        host.claims.iter().fold(room, |room, claim| {
            room.less(claim.cpus_milli, claim.memory_mib)
        })
    }

    fn unclaimed_gpus(&self, host: &Host) -> GpuMask {
        let all = host.gpus.iter().enumerate();
        let free = all
            .take(muster_model::limits::GPUS_PER_HOST_MAX)
            .filter(|(_, gpu)| gpu.is_free() && gpu.claim.is_none())
            .fold(GpuMask::default(), |mask, (position, _)| {
                mask.or(GpuMask::one(position))
            });
        self.counted(host, free)
    }

    /// The GPUs of a host that count in this capacity.
    pub(super) fn counted(&self, host: &Host, gpus: GpuMask) -> GpuMask {
        match &self.only {
            Some(only) => gpus.and(only.get(&host.id).copied().unwrap_or_default()),
            None => gpus,
        }
    }
}
