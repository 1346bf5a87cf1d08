//! Free GPUs by host, and the part of them that is unusable: fragmentation. A GPU that is reserved for a waiting unit
//! is free until the unit holds it.

use muster_model::host::Host;
use muster_model::limits;
use muster_model::spec::JobSpec;

/// Hosts by their number of free GPUs, for one GPU model.
type Levels = [u64; limits::GPUS_PER_HOST_MAX + 1];

/// Request of the first waiting job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeadRequest {
    gpus_per_task: u32,
    gpu_models: Vec<String>,
}

impl HeadRequest {
    /// The request of the job's task group with the largest tasks, which is the hardest to place; `None` if
    /// it needs no GPU.
    pub(crate) fn of(spec: &JobSpec) -> Option<Self> {
        let groups = spec.groups.iter().filter(|group| group.resources.gpus > 0);
        let hardest = groups.max_by_key(|group| group.resources.gpus)?;
        Some(Self {
            gpus_per_task: hardest.resources.gpus,
            gpu_models: hardest.resources.gpu_models.clone(),
        })
    }

    fn accepts(&self, model: &str) -> bool {
        self.gpu_models.is_empty() || self.gpu_models.iter().any(|name| name == model)
    }
}

/// Last recorded state of a host.
#[derive(Clone, Copy, Debug, Default)]
struct RecordedHost {
    class: usize,
    free: u32,
    whole: bool,
}

/// Free GPUs of all hosts, kept up to date host by host.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    seen: Vec<RecordedHost>,
    /// GPU models; a host with several counts under its first one.
    models: Vec<String>,
    levels: Vec<Levels>,
    free: u64,
    free_whole: u64,
}

impl Hosts {
    /// Records the current state of a host; hosts are identified by their ids, which count from 1.
    pub(crate) fn record(&mut self, host: &Host) {
        let position = host.id.get() as usize;
        if self.seen.len() <= position {
            self.seen.resize(position + 1, RecordedHost::default());
        }
        let before = self.seen[position];
        let after = self.look_at(host);
        if before.free > 0 {
            self.levels[before.class][before.free as usize] -= 1;
        }
        if after.free > 0 {
            self.levels[after.class][after.free as usize] += 1;
        }
        self.free = self.free - u64::from(before.free) + u64::from(after.free);
        let whole = |seen: RecordedHost| if seen.whole { u64::from(seen.free) } else { 0 };
        self.free_whole = self.free_whole - whole(before) + whole(after);
        self.seen[position] = after;
    }

    fn look_at(&mut self, host: &Host) -> RecordedHost {
        let free = if host.accepts_work() {
            host.gpus.iter().filter(|gpu| gpu.is_idle()).count()
        } else {
            0
        };
        let model = host.gpus.first().map_or("", |gpu| &gpu.model);
        RecordedHost {
            class: self.class(model),
            free: u32::try_from(free).expect("a host has at most GPUS_PER_HOST_MAX GPUs"),
            whole: free == host.gpus.len(),
        }
    }

    fn class(&mut self, model: &str) -> usize {
        let known = self.models.iter().position(|name| name == model);
        known.unwrap_or_else(|| {
            self.models.push(model.to_owned());
            self.levels.push([0; limits::GPUS_PER_HOST_MAX + 1]);
            self.models.len() - 1
        })
    }

    /// Number of GPUs that are usable and not held.
    pub(crate) const fn free(&self) -> u64 {
        self.free
    }

    /// Free GPUs that cannot take a request for a whole host, because others of their host are in use.
    pub(crate) const fn stranded_for_whole_host(&self) -> u64 {
        self.free - self.free_whole
    }

    /// Free GPUs that cannot take part in a request: the wrong model, or too few on their host for another
    /// task.
    pub(crate) fn stranded_for(&self, head: &HeadRequest) -> u64 {
        let classes = self.models.iter().zip(&self.levels);
        let useful = classes
            .filter(|(model, _)| head.accepts(model))
            .map(|(_, levels)| {
                let levels = levels.iter().zip(0u32..);
                levels
                    .map(|(hosts, free)| hosts * u64::from(free - free % head.gpus_per_task))
                    .sum::<u64>()
            });
        self.free - useful.sum::<u64>()
    }
}
