//! Virtual clusters: guaranteed cells, their binding to physical cells, and its safety.
//!
//! A virtual cluster is a queue whose guarantee is given in cells of some kinds. The physical cells are
//! chosen when it needs them ([`Allocation::choose`]); a cell is *bound* while an attempt or a claim of the
//! cluster uses it. A binding is allowed only if every cluster can still get all that it is owed afterwards
//! ([`Allocation::bind_safely`], with the arithmetic in [`surplus`]). Cells are bound whole: cells around and
//! inside a bound one are not free.
//!
//! [`CellTree`] is the tree of physical cells, [`Allocation`] records free, bound and owed cells; both are
//! derived from the state, maintained in `Index::allocation`, and empty while no queue is a virtual cluster.
//! [`settle()`] computes the effects of a change of hosts, topology or queues.

mod allocation;
mod cell_tree;
mod check;
mod choose;
mod holders;
mod host_changes;
mod load;
mod pack;
mod reassign;
mod safety;
mod serve;
mod shortage;
mod upgrade;

use std::sync::Arc;

pub use allocation::{Allocation, BindError, Bound, Quota};
pub use cell_tree::CellTree;
pub use check::{check_binding, check_cover, check_quotas};
pub use choose::Wanted;
pub use holders::OpportunisticAttempt;
pub use load::{HostLoad, Load};
pub use reassign::{Reassignment, settle};
pub use serve::{CellPlacement, Price, Request, Room, TaskRequest, serve};
pub use shortage::{CellShortage, CellsLeft};

use muster_model::host::Host;
use muster_model::topology::{ClusterTree, HostCells};

use crate::state::State;

/// Returns all hosts with their cells in a tree.
fn cells_of<'a>(
    state: &'a State,
    tree: &'a ClusterTree,
) -> impl Iterator<Item = (&'a Host, Arc<HostCells>)> {
    let hosts = state.hosts.values();
    hosts.map(move |host| (host.as_ref(), Arc::new(tree.cells(host))))
}
