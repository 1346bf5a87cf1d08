//! Topology: a tree of cells (GPU, PCIe switch, socket, host, rack, pod, ...) of any depth.
//!
//! [`Topology`] is configuration, replicated by `SetTopology`; [`ReportedTopology`] is what a worker knows of its
//! own host and reports when it registers. [`ClusterTree`] is derived from both for the whole cluster,
//! [`HostCells`] for one host: the names of the cells around it, and the cells that its GPUs form inside.

mod cells;
mod choice;
mod config;
mod flaw;
mod levels;
mod reported;
mod tree;
mod validate;

pub use cells::{CellId, CellKind, CellPaths, CellSource, GpuMask, HostCells, InsideCell};
pub use choice::TaskScope;
pub use config::{CellGroup, CellPlace, GPU_LEVEL, HOST_LEVEL, HostShape, Level, Topology};
pub use flaw::IgnoredReport;
pub use reported::{NamedCell, ReportedGpu, ReportedTopology};
pub use tree::ChangeScope;
pub use tree::ClusterTree;
pub use validate::usable_name;
pub use validate::validate;
