//! Queues and virtual clusters in a picture.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_engine::state::{Queue, State};
use muster_model::command::AllocationBasis;
use muster_model::quota::{CellQuota, Guarantee, within};
use muster_model::spec::DEFAULT_QUEUE;
use muster_model::topology::CellId;
use serde::Serialize;

use crate::scenario::picture::lines::Line;
use crate::scenario::picture::names::cell_name;

/// Section of queues among a picture's lines.
const SECTION: u8 = 2;

/// A queue, including its descendants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueuePicture {
    /// Full queue name.
    pub name: String,
    /// Whether the queue is no longer configured.
    pub retired: bool,
    /// GPUs that its attempts hold.
    pub gpus_used: u64,
    /// GPUs of these that are held opportunistically.
    pub gpus_opportunistic: u64,
    /// GPUs guaranteed, for queues whose guarantee is an amount.
    pub gpus_guaranteed: u64,
    /// Limit in GPUs.
    pub gpus_limit: Option<u64>,
    /// GPUs by user.
    pub users: BTreeMap<String, u64>,
    /// Cells guaranteed, for virtual clusters.
    pub cells: Vec<CellsPicture>,
    #[serde(skip)]
    shows_users: bool,
}

/// Cells of one kind that a virtual cluster is guaranteed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CellsPicture {
    /// Level, GPUs and model: `host 8xK80`.
    pub kind: String,
    /// Number of cells, without the pinned ones.
    pub count: u32,
    /// Cells bound to it now, pinned ones included.
    pub bound: Vec<String>,
    /// Pinned cells by name.
    pub pinned: BTreeMap<String, String>,
}

/// Queues by name; empty while there is only the default queue.
pub(super) fn pictures(state: &State) -> Vec<QueuePicture> {
    if state.queues.len() == 1 && state.queues.values().all(is_plain) {
        return Vec::new();
    }
    let queues = state.queues.values();
    let shown = queues.filter(|queue| &*queue.name != DEFAULT_QUEUE || !is_plain(queue));
    shown.map(|queue| picture(state, queue)).collect()
}

fn is_plain(queue: &Arc<Queue>) -> bool {
    *queue.config == muster_model::quota::QueueConfig::default()
}

fn picture(state: &State, queue: &Queue) -> QueuePicture {
    let mut picture = QueuePicture {
        name: queue.name.to_string(),
        retired: queue.retired,
        gpus_used: 0,
        gpus_opportunistic: 0,
        gpus_guaranteed: 0,
        gpus_limit: queue.config.limit.gpus,
        users: BTreeMap::new(),
        cells: Vec::new(),
        shows_users: queue.config.user_limit.gpus.is_some()
            || queue.config.order == muster_model::quota::QueueOrder::Fair,
    };
    count(state, queue, &mut picture);
    match &queue.config.guarantee {
        Guarantee::Amounts(amounts) => picture.gpus_guaranteed = amounts.gpus,
        Guarantee::Cells(quotas) => {
            let bound = bound_cells(state, queue);
            let cells = quotas.iter().map(|quota| cells(state, quota, &bound));
            picture.cells = cells.collect();
        }
    }
    picture
}

/// Counts what attempts of the queue and its descendants hold.
fn count(state: &State, queue: &Queue, picture: &mut QueuePicture) {
    for job in state.jobs.values() {
        if !within(&job.spec.queue).any(|name| name == &*queue.name) {
            continue;
        }
        for attempt in job
            .units
            .values()
            .filter_map(|unit| unit.attempt.as_deref())
        {
            let gpus: u64 = attempt.tasks.iter().map(|run| run.gpus.len() as u64).sum();
            picture.gpus_used += gpus;
            if attempt.allocation_basis == AllocationBasis::Opportunistic {
                picture.gpus_opportunistic += gpus;
            }
            if gpus > 0 {
                *picture.users.entry(job.spec.user.clone()).or_default() += gpus;
            }
        }
    }
}

/// Cells that attempts and claims of a virtual cluster are bound to.
fn bound_cells(state: &State, queue: &Queue) -> BTreeSet<CellId> {
    let jobs = state.jobs.values();
    let units = jobs
        .filter(|job| *job.spec.queue == *queue.name)
        .flat_map(|job| job.units.values());
    let mut bound = BTreeSet::new();
    for unit in units {
        let attempt = unit
            .attempt
            .as_deref()
            .map(|attempt| &attempt.allocation_basis);
        let claim = unit.claim.as_deref().map(|claim| &claim.allocation_basis);
        for allocation_basis in attempt.into_iter().chain(claim) {
            if let AllocationBasis::Cells(cells) = allocation_basis {
                bound.extend(cells.iter().cloned());
            }
        }
    }
    bound
}

fn cells(state: &State, quota: &CellQuota, bound: &BTreeSet<CellId>) -> CellsPicture {
    let pinned = quota.pinned.iter();
    let fits = |cell: &&CellId| is_of_kind(state, quota, cell);
    CellsPicture {
        kind: format!("{} {}x{}", quota.level, quota.gpus, quota.gpu_model),
        count: quota.count,
        bound: bound
            .iter()
            .filter(fits)
            .map(|cell| cell_name(state, cell))
            .collect(),
        pinned: pinned
            .map(|pin| (pin.name.clone(), pin.cell.clone()))
            .collect(),
    }
}

fn is_of_kind(state: &State, quota: &CellQuota, cell: &CellId) -> bool {
    let kind = state.index.allocation.tree().kind(cell);
    kind.is_some_and(|kind| {
        state.topology.level(&quota.level) == Some(kind.level)
            && *kind.gpu_model == *quota.gpu_model
            && kind.gpus == quota.gpus
    })
}

impl QueuePicture {
    pub(super) fn line(&self) -> Line {
        let name = format!("queue {}", self.name);
        Line::new(SECTION, &name, format!("{name}: {}", self.text()))
    }

    fn text(&self) -> String {
        let mut parts = vec![format!("{} GPUs", self.gpus_used)];
        if self.gpus_guaranteed > 0 {
            parts.push(format!("guarantee {}", self.gpus_guaranteed));
        }
        if let Some(limit) = self.gpus_limit {
            parts.push(format!("limit {limit}"));
        }
        if self.gpus_opportunistic > 0 {
            parts.push(format!("{} opportunistic", self.gpus_opportunistic));
        }
        if self.shows_users {
            let users = self.users.iter();
            parts.extend(users.map(|(user, gpus)| format!("{user} {gpus}")));
        }
        parts.extend(self.cells.iter().map(CellsPicture::text));
        if self.retired {
            parts.push("retired".to_owned());
        }
        parts.join(", ")
    }
}

impl CellsPicture {
    fn text(&self) -> String {
        let bound = self.bound.len();
        let mut text = format!("{}: {bound} of {}", self.kind, self.total());
        if bound > 0 {
            text.push_str(&format!(" ({})", self.bound.join(" ")));
        }
        text
    }

    fn total(&self) -> usize {
        self.count as usize + self.pinned.len()
    }
}
