//! GPU assignment over time by job, for a few hosts spread evenly over the cluster.

use std::collections::BTreeMap;

use muster_model::ids::GpuUuid;

/// Maximum number of GPUs drawn.
const ROWS_MAX: usize = 64;

/// A span during which a job held a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    /// Index of the row.
    pub(crate) row: usize,
    /// Index of the job in the scenario.
    pub(crate) job: usize,
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
}

/// Bars of the chosen GPUs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gantt {
    /// Name of every row: host and index.
    pub(crate) rows: Vec<String>,
    /// Finished bars, in order of their end.
    pub(crate) bars: Vec<Bar>,
    by_gpu: BTreeMap<GpuUuid, usize>,
    open: Vec<Option<(usize, u64)>>,
}

impl Gantt {
    /// Chooses the hosts to draw from `(name, GPUs)` of all of them, in order.
    pub(crate) fn new(hosts: &[(String, Vec<GpuUuid>)]) -> Self {
        let hosts: Vec<_> = hosts.iter().filter(|(_, gpus)| !gpus.is_empty()).collect();
        let largest = hosts.iter().map(|(_, gpus)| gpus.len()).max().unwrap_or(1);
        let count = (ROWS_MAX / largest).clamp(1, hosts.len().max(1));
        let mut gantt = Self::default();
        for number in 0..count.min(hosts.len()) {
            let (name, gpus) = hosts[number * hosts.len() / count];
            for (index, gpu) in gpus.iter().enumerate() {
                gantt.by_gpu.insert(*gpu, gantt.rows.len());
                gantt.rows.push(format!("{name}/{index}"));
                gantt.open.push(None);
            }
        }
        gantt
    }

    /// Records that a job gets GPUs.
    pub(crate) fn begin<'a>(
        &mut self,
        job: usize,
        gpus: impl Iterator<Item = &'a GpuUuid>,
        now_ms: u64,
    ) {
        for gpu in gpus {
            if let Some(row) = self.by_gpu.get(gpu) {
                self.open[*row] = Some((job, now_ms));
            }
        }
    }

    /// Records that a job releases all its GPUs.
    pub(crate) fn end(&mut self, job: usize, now_ms: u64) {
        for (row, open) in self.open.iter_mut().enumerate() {
            if let Some((_, from_ms)) = open.take_if(|(holder, _)| *holder == job) {
                self.bars.push(Bar {
                    row,
                    job,
                    from_ms,
                    to_ms: now_ms,
                });
            }
        }
    }

    /// Closes all bars at the end of the run.
    pub(crate) fn finish(&mut self, now_ms: u64) {
        let open: Vec<usize> = self.open.iter().flatten().map(|(job, _)| *job).collect();
        for job in open {
            self.end(job, now_ms);
        }
    }
}
