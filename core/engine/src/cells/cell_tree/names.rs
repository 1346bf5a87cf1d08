//! Names of cells: parsing of configured names, and display names.

use std::sync::Arc;

use muster_model::ids::HostId;
use muster_model::limits;
use muster_model::quota::PinnedCell;
use muster_model::topology::{CellId, CellKind, GpuMask, Level};

use crate::cells::CellTree;

/// Separator between the name of a host and the position of a GPU in the name of a cell inside the host.
const POSITION: char = ':';

impl CellTree {
    /// Returns the cell that a configuration names on a level.
    #[must_use]
    pub fn find(&self, level: Level, pinned: &PinnedCell) -> Option<CellId> {
        let host_level = self.topology.host_level();
        if level < host_level {
            let (path, place) = self.places.get_key_value(pinned.cell.as_str())?;
            return (place.level == level).then(|| CellId::Above(Arc::clone(path)));
        }
        if level == host_level {
            return self
                .names
                .get(pinned.cell.as_str())
                .copied()
                .map(CellId::Host);
        }
        let (name, position) = pinned.cell.rsplit_once(POSITION)?;
        let id = *self.names.get(name)?;
        let gpu = GpuMask::one(
            position
                .parse()
                .ok()
                .filter(|position| *position < limits::GPUS_PER_HOST_MAX)?,
        );
        let host = self.hosts.get(&id)?;
        let cell = host
            .form
            .cells
            .iter()
            .find(|cell| cell.level == level && cell.gpus.covers(gpu))?;
        Some(CellId::Inside(id, level, cell.gpus))
    }

    /// Returns the display name of a cell: `rack pod-1/rack-07`, `host node07`, `socket node07:4`.
    #[must_use]
    pub fn name(&self, cell: &CellId) -> String {
        let level = |level| self.topology.name(level).unwrap_or("cell").to_owned();
        let host = |id: &HostId| {
            let known = self.hosts.get(id);
            known.map_or_else(|| id.to_string(), |host| host.name.to_string())
        };
        match cell {
            CellId::Above(path) => {
                let depth = path.matches('/').count();
                let depth = Level(u8::try_from(depth).unwrap_or(u8::MAX));
                format!("{} {path}", level(depth))
            }
            CellId::Host(id) => format!("host {}", host(id)),
            CellId::Inside(id, depth, gpus) => {
                let first = gpus.0.trailing_zeros();
                format!("{} {}{POSITION}{first}", level(*depth), host(id))
            }
        }
    }

    /// Returns the display name of a kind: `host of 8 H100`.
    #[must_use]
    pub fn kind_name(&self, kind: &CellKind) -> String {
        let level = self.topology.name(kind.level).unwrap_or("cell");
        format!("{level} of {} {}", kind.gpus, kind.gpu_model)
    }
}
