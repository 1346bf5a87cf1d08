//! Quotas: a tree of queues with guarantees, limits and weights, replicated by `ConfigureQueues`.
//!
//! A queue whose guarantee is given in cells is a *virtual cluster*: it gets those cells whenever it asks,
//! independent of the other queues.

mod amounts;
mod config;
mod defragment;
mod validate;

pub use amounts::{Amounts, Limits};
pub use config::{
    CellQuota, Guarantee, PinnedCell, QueueConfig, QueueOrder, QueueTree, parent_of, within,
};
pub use defragment::Defragment;
pub use validate::validate;
