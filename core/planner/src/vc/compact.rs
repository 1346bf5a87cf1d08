//! Compaction of a placement: several tasks of a unit on one host share the smallest cell that has room for
//! all of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use muster_engine::cells::Request;
use muster_model::ids::HostId;
use muster_model::topology::{CellId, GpuMask, TaskScope};

use crate::vc::hosts::Hosts;

impl Hosts<'_, '_> {
    /// The same tasks on the same hosts, on GPUs that are closer together; `None` if nothing is gained, or
    /// if that would leave a cell unused. The hosts are given as they were before the tasks were placed.
    pub(super) fn compacted(
        &self,
        request: &Request,
        placed: &[(HostId, GpuMask)],
        cells: &[CellId],
    ) -> Option<Vec<(HostId, GpuMask)>> {
        let mut by_host: BTreeMap<HostId, Vec<usize>> = BTreeMap::new();
        for (task, (host, _)) in placed.iter().enumerate() {
            by_host.entry(*host).or_default().push(task);
        }
        let mut tidied = placed.to_vec();
        for (host, tasks) in by_host.iter().filter(|(_, tasks)| tasks.len() > 1) {
            let chosen = self.together(*host, request, tasks, cells)?;
            for (task, gpus) in tasks.iter().zip(chosen) {
                tidied[*task].1 = gpus;
            }
        }
        self.uses_all(&tidied, cells).then_some(tidied)
    }

    /// GPUs for some tasks on one host, in their order.
    fn together(
        &self,
        id: HostId,
        request: &Request,
        tasks: &[usize],
        cells: &[CellId],
    ) -> Option<Vec<GpuMask>> {
        let host_cells = self.cells(id)?;
        let model = &request.tasks[*tasks.first()?].gpu_model;
        let particular = |task: &usize| {
            let piece = &request.tasks[*task];
            piece.gpu_model != *model || self.is_particular(piece.group)
        };
        if tasks.iter().any(particular) {
            return None;
        }
        let region = self.free_in(id, model, cells);
        let total = tasks.iter().map(|task| request.tasks[*task].gpus).sum();
        let mut rest = host_cells.choose(TaskScope::Host, region, total)?;
        let mut order: Vec<usize> = (0..tasks.len()).collect();
        order.sort_by_key(|position| Reverse(request.tasks[tasks[*position]].gpus));
        let mut chosen = vec![GpuMask::default(); tasks.len()];
        for position in order {
            let gpus = request.tasks[tasks[position]].gpus;
            let mask = host_cells.choose(TaskScope::Host, rest, gpus)?;
            rest = rest.without(mask);
            chosen[position] = mask;
        }
        Some(chosen)
    }

    fn uses_all(&self, placed: &[(HostId, GpuMask)], cells: &[CellId]) -> bool {
        cells.iter().all(|cell| {
            let gpus = self.tree().gpus(cell);
            gpus.iter().any(|(host, inside)| {
                let mut there = placed.iter().filter(|(other, _)| other == host);
                there.any(|(_, gpus)| !gpus.and(*inside).is_empty())
            })
        })
    }
}
