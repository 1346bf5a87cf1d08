//! Checks of `apply` before it accepts a configuration or a binding.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_model::command::TaskPlacement;
use muster_model::host::Host;
use muster_model::ids::HostId;
use muster_model::quota::{CellQuota, Guarantee, PinnedCell, QueueConfig};
use muster_model::spec::{JobSpec, Violation};
use muster_model::topology::{CellId, CellKind, ClusterTree, GpuMask};

use crate::cells::{Allocation, BindError, CellTree, cells_of};
use crate::state::State;

/// Checks that the cluster can honour all guaranteed cells; returns every violated rule with its location and
/// the sum. A cluster without GPUs accepts any guarantee.
#[must_use]
pub fn check_quotas<'a>(
    state: &State,
    tree: &ClusterTree,
    queues: impl Iterator<Item = (&'a str, &'a QueueConfig)> + Clone,
) -> Vec<Violation> {
    let is_virtual_cluster = |(_, config): (&str, &QueueConfig)| config.is_virtual_cluster();
    let has_gpus = state.hosts.values().any(|host| !host.gpus.is_empty());
    if !has_gpus || !queues.clone().any(is_virtual_cluster) {
        return Vec::new();
    }
    let tree = CellTree::new(tree.topology(), cells_of(state, tree));
    let allocation = Allocation::new(tree, queues.clone());
    let mut found = Vec::new();
    for (name, config) in queues {
        if let Guarantee::Cells(quotas) = &config.guarantee {
            for (position, quota) in quotas.iter().enumerate() {
                let at = format!("queues.{name}.guarantee.cells[{position}].pinned");
                let broken = quota.pinned.iter();
                let broken = broken.filter_map(|pinned| broken_pin(&allocation, quota, pinned));
                found.extend(broken.map(|rule| Violation {
                    field: at.clone(),
                    rule,
                }));
            }
        }
    }
    found.extend(missing(&allocation));
    found
}

fn broken_pin(allocation: &Allocation, quota: &CellQuota, pinned: &PinnedCell) -> Option<String> {
    let tree = allocation.tree();
    let level = tree.topology().level(&quota.level)?;
    let Some(cell) = tree.find(level, pinned) else {
        return Some(format!(
            "`{}` is not a {} of the cluster",
            pinned.cell, quota.level
        ));
    };
    if allocation.pinned(&pinned.name) == Some(&cell) {
        return None;
    }
    let wanted = CellKind {
        level,
        gpu_model: Arc::from(quota.gpu_model.as_str()),
        gpus: quota.gpus,
    };
    match tree.kind(&cell) {
        Some(kind) if kind == wanted => Some(format!(
            "`{}` lies in or around another pinned cell",
            pinned.cell
        )),
        kind => Some(format!(
            "`{}` is a {}, not a {}",
            pinned.cell,
            kind.map_or_else(
                || "cell of several GPU models".to_owned(),
                |kind| tree.kind_name(&kind)
            ),
            tree.kind_name(&wanted)
        )),
    }
}

/// Returns the kinds with too few cells.
fn missing(allocation: &Allocation) -> impl Iterator<Item = Violation> {
    allocation
        .sums(None)
        .into_iter()
        .filter(|(_, sum)| sum.left() < 0)
        .map(|(kind, sum)| {
            let owed = allocation.owed(kind);
            let owed: Vec<String> = owed
                .iter()
                .map(|(queue, count)| format!("{queue} {count}"))
                .collect();
            Violation {
                field: "queues".to_owned(),
                rule: format!(
                    "cells are missing: {} (owed: {})",
                    sum.text(allocation.tree(), kind),
                    owed.join(", ")
                ),
            }
        })
        .collect::<Vec<_>>()
        .into_iter()
}

impl Allocation {
    /// Binds a cell to a virtual cluster once more, if every cluster can still get all that it is owed
    /// afterwards (an existing shortage must not grow).
    ///
    /// # Errors
    /// If it cannot be bound; then nothing changes.
    pub fn bind_safely(&mut self, queue: &Arc<str>, cell: &CellId) -> Result<(), BindError> {
        if self.bound(cell).is_some() {
            return self.bind(queue, cell);
        }
        let mut trial = self.clone();
        trial.bind(queue, cell)?;
        if let Some(arithmetic) = trial.less_safe_than(self, cell) {
            return Err(BindError::Unsafe {
                cell: self.tree().name(cell),
                arithmetic,
            });
        }
        *self = trial;
        Ok(())
    }

    /// Returns the sum of a kind with a larger shortage than before; only kinds of the cell's GPU model are
    /// compared.
    fn less_safe_than(&self, before: &Self, cell: &CellId) -> Option<String> {
        let model = self.tree().kind(cell)?.gpu_model;
        let after = self.sums(Some(&model));
        if after.values().all(|sum| sum.left() >= 0) {
            return None;
        }
        let before = before.sums(Some(&model));
        after.into_iter().find_map(|(kind, sum)| {
            let allowed = before.get(kind).map_or(0, |sum| sum.left().min(0));
            (sum.left() < allowed).then(|| sum.text(self.tree(), kind))
        })
    }
}

/// Checks that a unit may hold these GPUs by the guarantee of its virtual cluster: they lie in the cells,
/// each cell is needed, is bound to the cluster or may be, and is pinned exactly if the job asks for a pinned
/// cell. `allocation` is the state's, without what the unit's own claim binds.
///
/// # Errors
/// The first violation, human-readable.
pub fn check_binding(
    state: &State,
    allocation: &Allocation,
    spec: &JobSpec,
    cells: &[CellId],
    tasks: &[TaskPlacement],
) -> Result<(), String> {
    if !cells.is_sorted_by(|earlier, later| earlier < later) {
        return Err("the cells are not in ascending order".to_owned());
    }
    check_cover(state, allocation.tree(), cells, tasks)?;
    let queue: Arc<str> = Arc::from(spec.queue.as_str());
    let mut trial = allocation.clone();
    for cell in cells {
        trial
            .bind(&queue, cell)
            .map_err(|refusal| refusal.to_string())?;
        let pinned = trial.bound(cell).and_then(|bound| bound.pinned.as_deref());
        if pinned != spec.scheduling.pinned_cell.as_deref() {
            return Err(format!(
                "{} is {}, and the job asks for {}",
                trial.tree().name(cell),
                pinned.map_or_else(
                    || "not pinned".to_owned(),
                    |name| format!("pinned as `{name}`")
                ),
                spec.scheduling
                    .pinned_cell
                    .as_ref()
                    .map_or_else(|| "no pinned cell".to_owned(), |name| format!("`{name}`")),
            ));
        }
    }
    check_safety(allocation, &trial, cells)
}

/// Checks that every virtual cluster can still get what it is owed with all these cells bound.
fn check_safety(before: &Allocation, after: &Allocation, cells: &[CellId]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for cell in cells {
        let kind = after.tree().kind(cell);
        let is_new = kind.is_some_and(|kind| seen.insert(kind.gpu_model));
        if is_new && let Some(arithmetic) = after.less_safe_than(before, cell) {
            let cell = after.tree().name(cell);
            return Err(BindError::Unsafe { cell, arithmetic }.to_string());
        }
    }
    Ok(())
}

/// Checks that all GPUs of these tasks lie in the cells, and that every cell holds at least one of them.
///
/// # Errors
/// The first GPU outside, or the first cell that holds none, human-readable.
pub fn check_cover(
    state: &State,
    tree: &CellTree,
    cells: &[CellId],
    tasks: &[TaskPlacement],
) -> Result<(), String> {
    let mut used = vec![false; cells.len()];
    for task in tasks {
        let host = state
            .host(task.host)
            .ok_or_else(|| format!("host {} does not exist", task.host))?;
        for position in positions(host, task) {
            let position = position.ok_or_else(|| format!("host {} has other GPUs", host.name))?;
            let cell = position_in(tree, cells, host.id, position).ok_or_else(|| {
                format!(
                    "GPU {position} of host {} lies in none of the cells",
                    host.name
                )
            })?;
            used[cell] = true;
        }
    }
    match used.iter().position(|used| !used) {
        Some(unused) => Err(format!(
            "{} holds none of the unit's GPUs",
            tree.name(&cells[unused])
        )),
        None => Ok(()),
    }
}

fn positions<'a>(
    host: &'a Host,
    task: &'a TaskPlacement,
) -> impl Iterator<Item = Option<usize>> + 'a {
    task.gpus
        .iter()
        .map(|uuid| host.gpus.iter().position(|gpu| gpu.uuid == *uuid))
}

/// Returns which of the cells, ascending, a GPU lies in.
fn position_in(tree: &CellTree, cells: &[CellId], host: HostId, position: usize) -> Option<usize> {
    let gpu = CellId::Inside(host, tree.topology().gpu_level(), GpuMask::one(position));
    tree.around(&gpu)
        .find_map(|cell| cells.binary_search(&cell).ok())
}
