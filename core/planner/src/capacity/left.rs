//! What a host has left in a round.

use muster_engine::feasibility::{Asker, Room};
use muster_model::host::Host;
use muster_model::ids::JobId;
use muster_model::topology::GpuMask;

use crate::capacity::Capacity;

/// What a host has left in the round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    /// CPUs, memory and tasks that nobody holds or claims.
    pub(super) room: Room,
    /// GPUs that nobody holds or claims.
    pub(super) free: GpuMask,
    /// GPUs given out in the round.
    pub(super) taken: GpuMask,
    /// Who came in the round.
    pub(super) newcomers: Newcomers,
}

/// Jobs that a round put on a host.
#[derive(Clone, Copy, Debug)]
pub(super) enum Newcomers {
    Nobody,
    One { job: JobId, exclusive: bool },
    Several,
}

impl Left {
    /// Whether those who came in the round let the unit in.
    pub(super) fn admits(&self, asker: Asker<'_>) -> bool {
        match self.newcomers {
            Newcomers::Nobody => true,
            Newcomers::One { job, exclusive } => {
                job == asker.job.id || (!exclusive && !asker.is_exclusive())
            }
            Newcomers::Several => !asker.is_exclusive(),
        }
    }

    /// Whether the round put anything of a job here (it may have, where several came).
    pub(super) fn holds(&self, job: JobId) -> bool {
        match self.newcomers {
            Newcomers::Nobody => false,
            Newcomers::One { job: one, .. } => one == job,
            Newcomers::Several => true,
        }
    }

    /// A unit comes to the host.
    pub(super) fn enter(&mut self, asker: Asker<'_>) {
        self.newcomers = match self.newcomers {
            Newcomers::Nobody => Newcomers::One {
                job: asker.job.id,
                exclusive: asker.is_exclusive(),
            },
            Newcomers::One { job, .. } if job != asker.job.id => Newcomers::Several,
            known => known,
        };
    }
}

impl Capacity<'_> {
    pub(super) fn left_of(&self, host: &Host) -> Left {
        self.left.get(&host.id).copied().unwrap_or_else(|| Left {
            room: self.unclaimed_room(host),
            free: self.unclaimed_gpus(host),
            taken: GpuMask::default(),
            newcomers: Newcomers::Nobody,
        })
    }

    /// The room of a host alone, which is found without a look at its GPUs.
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

    /// Those of a host's GPUs that count.
    pub(super) fn counted(&self, host: &Host, gpus: GpuMask) -> GpuMask {
        match &self.only {
            Some(only) => gpus.and(only.get(&host.id).copied().unwrap_or_default()),
            None => gpus,
        }
    }
}
