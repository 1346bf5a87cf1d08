//! Where GPUs are: a tree of cells (GPU, PCIe switch, socket, host, rack, pod, ...) of free depth.
//!
//! [`Topology`] is configuration, replicated by `SetTopology`. [`HostCells`] is what follows from it for one
//! host: the names of the cells around it, and the cells that its GPUs form inside.

mod cells;
mod choice;
mod config;
mod validate;

pub use cells::{CellId, CellKind, GpuMask, HostCells, InsideCell, Places};
pub use choice::Own;
pub use config::{CellGroup, CellPlace, GPU_LEVEL, HOST_LEVEL, HostShape, Level, Topology};
pub use validate::validate;
