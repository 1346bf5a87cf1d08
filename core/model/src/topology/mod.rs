//! Topology: a tree of cells (GPU, PCIe switch, socket, host, rack, pod, ...) of any depth.
//!
//! [`Topology`] is configuration, replicated by `SetTopology`; [`LearntTree`] is what a worker knows of its
//! own host and reports when it registers. [`ClusterTree`] is derived from both for the whole cluster,
//! [`HostCells`] for one host: the names of the cells around it, and the cells that its GPUs form inside.

mod cells;
mod choice;
mod config;
mod flaw;
mod learnt;
mod levels;
mod tree;
mod validate;

pub use cells::{CellId, CellKind, CellSource, GpuMask, HostCells, InsideCell, Places};
pub use choice::Own;
pub use config::{CellGroup, CellPlace, GPU_LEVEL, HOST_LEVEL, HostShape, Level, Topology};
pub use flaw::TreeFlaw;
pub use learnt::{LearntGpu, LearntTree, NamedCell};
pub use tree::ClusterTree;
pub use tree::Reach;
pub use validate::usable_name;
pub use validate::validate;
