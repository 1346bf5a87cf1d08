//! GPU selection for a task on its host: the smallest cell with room, the fullest subcells first.
//!
//! Nothing is enumerated: every step counts the free GPUs of the cells on one level, so that a choice costs
//! the host's cells times its levels at any utilization.

use crate::topology::{GpuMask, HostCells, InsideCell, Level, Topology};

/// Scope that one task's own GPUs must share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskScope {
    /// The host.
    Host,
    /// A cell of this level inside the host.
    Cell(Level),
    /// The GPU: a task may have at most one.
    Gpu,
}

impl TaskScope {
    /// Requirement of a level on one task's GPUs; `Host` for levels from `host` upwards.
    #[must_use]
    pub fn of(topology: &Topology, level: Level) -> Self {
        if level <= topology.host_level() {
            Self::Host
        } else if level < topology.gpu_level() {
            Self::Cell(level)
        } else {
            Self::Gpu
        }
    }
}

impl HostCells {
    /// Number of tasks with this many GPUs each that fit on the free ones.
    #[must_use]
    pub fn tasks(&self, own: TaskScope, free: GpuMask, gpus: u32) -> u32 {
        if gpus == 0 {
            return u32::MAX;
        }
        match own {
            TaskScope::Host => free.count() / gpus,
            TaskScope::Cell(level) => self
                .on_level(level)
                .map(|cell| cell.gpus.and(free).count() / gpus)
                .sum(),
            TaskScope::Gpu if gpus == 1 => free.count(),
            TaskScope::Gpu => 0,
        }
    }

    /// Chooses the GPUs of one task among the free ones: those of the smallest cell that has enough (among
    /// equals, the one with the fewest), within it from the subcells with the fewest first.
    #[must_use]
    pub fn choose(&self, own: TaskScope, free: GpuMask, gpus: u32) -> Option<GpuMask> {
        if self.tasks(own, free, gpus) == 0 {
            return None;
        }
        let level_max = match own {
            TaskScope::Cell(level) => Some(level),
            TaskScope::Host | TaskScope::Gpu => None,
        };
        let region = self
            .smallest(level_max, free, gpus)
            .map_or(free, |cell| cell.gpus.and(free));
        Some(fill(&self.inside, region, gpus))
    }

    /// The cells of a level.
    pub fn on_level(&self, level: Level) -> impl Iterator<Item = &InsideCell> {
        self.inside.iter().filter(move |cell| cell.level == level)
    }

    /// The deepest cell with enough free GPUs, among those the fullest, among those the first; none larger
    /// than `level_max`.
    fn smallest(&self, level_max: Option<Level>, free: GpuMask, gpus: u32) -> Option<&InsideCell> {
        let roomy = self.inside.iter().filter(|cell| {
            level_max.is_none_or(|level| cell.level >= level) && cell.gpus.and(free).count() >= gpus
        });
        roomy.min_by_key(|cell| (std::cmp::Reverse(cell.level), cell.gpus.and(free).count()))
    }
}

/// Takes GPUs from a region that has enough. `cells` are those that may be in it, by level.
fn fill(cells: &[InsideCell], region: GpuMask, gpus: u32) -> GpuMask {
    if region.count() == gpus {
        return region;
    }
    let inner = |cell: &&InsideCell| {
        let part = cell.gpus.and(region);
        !part.is_empty() && part != region
    };
    let Some(level) = cells.iter().find(inner).map(|cell| cell.level) else {
        return region.lowest(gpus);
    };
    let end = cells.partition_point(|cell| cell.level <= level);
    let of_level = cells[..end].iter().filter(|cell| cell.level == level);
    let mut parts: Vec<GpuMask> = of_level.map(|cell| cell.gpus.and(region)).collect();
    let covered = parts
        .iter()
        .fold(GpuMask::default(), |all, part| all.or(*part));
    parts.push(region.without(covered));
    parts.retain(|part| !part.is_empty());
    parts.sort_by_key(|part| (part.count(), part.0.trailing_zeros()));
    let mut taken = GpuMask::default();
    let mut left = gpus;
    for part in parts.clone() {
        // The fullest part that has enough for the rest completes the choice.
        if let Some(last) = parts
            .iter()
            .find(|other| other.count() >= left && taken.and(**other).is_empty())
        {
            return taken.or(fill(&cells[end..], *last, left));
        }
        taken = taken.or(part);
        left -= part.count();
    }
    taken
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn cell(level: u8, first: usize, gpus: usize) -> InsideCell {
        InsideCell {
            level: Level(level),
            gpus: GpuMask(GpuMask::first(gpus).0 << first),
        }
    }

    /// Eight GPUs on two sockets (level 1) with two PCIe switches (level 2) each.
    fn eight() -> HostCells {
        HostCells {
            inside: Arc::from([
                cell(1, 0, 4),
                cell(1, 4, 4),
                cell(2, 0, 2),
                cell(2, 2, 2),
                cell(2, 4, 2),
                cell(2, 6, 2),
            ]),
            ..HostCells::default()
        }
    }

    #[test]
    fn a_task_gets_the_fullest_of_the_smallest_cells() {
        let cells = eight();
        let chosen = |free, gpus| {
            cells
                .choose(TaskScope::Host, GpuMask(free), gpus)
                .map(|mask| mask.0)
        };
        assert_eq!(chosen(0b1111_1111, 1), Some(0b0000_0001));
        assert_eq!(chosen(0b1111_1110, 1), Some(0b0000_0010));
        assert_eq!(chosen(0b1111_1110, 2), Some(0b0000_1100));
        assert_eq!(chosen(0b1111_1110, 3), Some(0b0000_1110));
        assert_eq!(chosen(0b1111_1110, 4), Some(0b1111_0000));
        assert_eq!(chosen(0b1110_0111, 5), Some(0b1100_0111));
        assert_eq!(chosen(0b0000_0110, 3), None);
    }

    #[test]
    fn own_gpus_share_the_cell_that_is_asked_for() {
        let cells = eight();
        let free = GpuMask(0b0110_0110);
        assert_eq!(cells.tasks(TaskScope::Host, free, 2), 2);
        assert_eq!(cells.tasks(TaskScope::Cell(Level(1)), free, 2), 2);
        assert_eq!(cells.tasks(TaskScope::Cell(Level(2)), free, 2), 0);
        assert_eq!(cells.tasks(TaskScope::Gpu, free, 1), 4);
        assert_eq!(cells.choose(TaskScope::Cell(Level(2)), free, 2), None);
        let chosen = cells.choose(TaskScope::Cell(Level(1)), free, 2);
        assert_eq!(chosen, Some(GpuMask(0b0000_0110)));
    }

    #[test]
    fn uneven_cells_and_gpus_outside_of_any_are_used() {
        let cells = HostCells {
            inside: Arc::from([cell(1, 0, 5), cell(2, 0, 2)]),
            ..HostCells::default()
        };
        let chosen = |free, gpus| {
            cells
                .choose(TaskScope::Host, GpuMask(free), gpus)
                .map(|mask| mask.0)
        };
        assert_eq!(chosen(0b111_1111, 6), Some(0b110_1111));
        assert_eq!(chosen(0b111_1111, 7), Some(0b111_1111));
        assert_eq!(chosen(0b110_0000, 1), Some(0b010_0000));
    }
}
