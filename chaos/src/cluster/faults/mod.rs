//! Faults of a local cluster of processes. `fault` names every kind of fault, for all tests that inject some;
//! the other modules are the driver: they break and repair processes, machines, links, disks, syncs, clocks and
//! GPUs. When and where a fault is injected, and what it may lead to, is decided by [`crate::run`],
//! [`crate::trials`] and [`crate::demo`].

mod disruption;
mod fault;
mod gpu;
mod library;
mod named_process;
mod processes;
mod small_disk;

pub use disruption::{Disruption, Part};
pub use fault::Fault;
pub use gpu::{DOUBLE_BIT_XID, OFF_THE_BUS_XID, set_gpu_error};
pub use library::LibraryCommands;
pub(super) use library::build_library;
pub(crate) use named_process::NamedProcess;
pub use named_process::{NamedAgent, UnfitProcess};
pub use processes::flip_bit;
pub(super) use small_disk::SmallDisk;
