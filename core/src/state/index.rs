//! Look-ups derived from the rest of the state, kept up to date by `apply`, so that no decision scans
//! all hosts or all jobs.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use crate::ids::{AttemptEpoch, HostId, JobId, UnitIndex};
use crate::spec::JobSpec;
use crate::time::TimeMs;

/// Hosts of one kind: those that carry the same GPU model (a host of several models is in several
/// classes); empty for all hosts, whatever they carry.
pub type HostClass = Arc<str>;

/// Order in which jobs are considered: highest priority first, then the oldest.
pub type WaitingKey = (Reverse<i32>, JobId);

/// Which hosts the tasks of a job compete for. A waiting job holds up those behind it whose lane meets
/// its own, and nobody else, so a full cluster is noticed after one look per lane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// It needs no GPU.
    Cpu,
    /// It takes GPUs of these models, ascending.
    Models(Arc<[String]>),
    /// It takes GPUs of any model.
    AnyGpu,
}

impl Lane {
    /// The lane of a job.
    #[must_use]
    pub fn of(spec: &JobSpec) -> Self {
        let asking = || spec.groups.iter().filter(|group| group.resources.gpus > 0);
        if asking().next().is_none() {
            return Self::Cpu;
        }
        if asking().any(|group| group.resources.gpu_models.is_empty()) {
            return Self::AnyGpu;
        }
        let models: BTreeSet<&String> = asking()
            .flat_map(|group| &group.resources.gpu_models)
            .collect();
        Self::Models(models.into_iter().cloned().collect())
    }

    /// Whether jobs of the two lanes may want the same GPUs (or both none).
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cpu, Self::Cpu) => true,
            (Self::Cpu, _) | (_, Self::Cpu) => false,
            (Self::AnyGpu, _) | (_, Self::AnyGpu) => true,
            (Self::Models(ours), Self::Models(theirs)) => {
                ours.iter().any(|model| theirs.contains(model))
            }
        }
    }
}

/// Derived look-ups; rebuilt from the rest when a snapshot is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Jobs with waiting units, by queue and lane ([`Lane::of`] their specification), in order; no entry
    /// is empty.
    pub waiting: OrdMap<(Arc<str>, Lane), OrdSet<WaitingKey>>,
    /// Units that wait for the end of a back-off, by that end (they are in `waiting` too).
    pub delayed: OrdSet<(TimeMs, JobId, UnitIndex)>,
    /// Hosts that accept work, by class and number of free GPUs of that class; under the empty class every
    /// one of them, with all its free GPUs.
    pub free: OrdMap<HostClass, OrdSet<(u32, HostId)>>,
    /// Units that hold resources on a host.
    pub on_host: OrdMap<(HostId, JobId, UnitIndex), AttemptEpoch>,
    /// Finished jobs, oldest first.
    pub finished: OrdSet<(TimeMs, JobId)>,
    /// Blocks that end by themselves: expiry, host, and position of the GPU in it (none = the host).
    pub expiring: OrdSet<(TimeMs, HostId, Option<u32>)>,
}
