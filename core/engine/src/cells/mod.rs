//! Virtual clusters: guaranteed cells, their binding to physical cells, and its safety.
//!
//! A virtual cluster is a queue whose guarantee is given in cells of some kinds. The physical cells are
//! chosen when it needs them ([`Allocation::choose`]); a cell is *bound* while an attempt or a claim of the
//! cluster uses it. A binding is allowed only if every cluster can still get all that it is owed afterwards
//! ([`Allocation::bind_safely`], with the arithmetic in [`surplus`]). Cells are bound whole: cells around and
//! inside a bound one are not free.
//!
//! [`Ground`] is the tree of physical cells, [`Allocation`] records free, bound and owed cells; both are
//! derived from the state, maintained in `Index::allocation`, and empty while no queue is a virtual cluster.
//! [`settle()`] computes the effects of a change of hosts, topology or queues.

mod allocation;
mod check;
mod choose;
mod ground;
mod load;
mod pack;
mod regrow;
mod serve;
mod settle;
mod shortage;
mod surplus;
mod upgrade;
mod upkeep;

use std::sync::Arc;

pub use allocation::{Allocation, BindError, Bound, Quota};
pub use check::{check_binding, check_cover, check_quotas};
pub use choose::Wanted;
pub use ground::Ground;
pub use load::{HostLoad, Load};
pub use serve::{Piece, Price, Request, Room, Served, serve};
pub use settle::{Settled, settle};
pub use shortage::{CellShortage, CellsLeft};
pub use upkeep::Guest;

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
