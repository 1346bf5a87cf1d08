//! Guard rails against the health logic itself: budgets, a breaker, incidents, and the last host of a pool.
//!
//! Part of the replicated state, and consulted by `apply`: two simultaneous proposals, or those of an old and
//! a new leader, must not exceed a budget together.

mod breaker;
mod incidents;
mod ledger;

use muster_model::health::{Component, Scope, Weight};
use muster_model::ids::{HostId, JobId};
use muster_model::named_enum;
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

pub use self::breaker::Breaker;
pub use self::incidents::{Group, GroupKind, Incident, Incidents};
pub use self::ledger::{Rails, RailsLimits};

named_enum! {
    /// Guard rail that can refuse a block or a repair.
    Rail {
        /// Too much of the pool was newly blocked within an hour.
        Hour = "soft_blocks_in_an_hour",
        /// Too much of the pool is blocked by soft evidence.
        Outstanding = "soft_blocks_outstanding",
        /// The breaker is tripped.
        Breaker = "breaker",
        /// So much of the pool is broken that an operator must look before anything is killed or repaired.
        Hard = "hard_blocks",
        /// One job has reached its limit of soft blocks.
        Job = "job",
        /// One tenant has reached its limit of soft blocks.
        Tenant = "tenant",
        /// The evidence is from one user's failures only.
        Users = "users",
        /// It is the last host of its pool.
        LastHost = "last_host",
        /// The maximum number of repairs is in progress.
        Repairs = "repairs",
        /// A repair is in progress in the rack.
        RackRepair = "repair_in_rack",
        /// It is part of an incident.
        Incident = "incident",
    }
}

/// A block proposed by an automatic actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal<'a> {
    /// The component.
    pub component: &'a Component,
    /// The host.
    pub host: HostId,
    /// Scope of the block.
    pub scope: Scope,
    /// Number of GPUs that it takes out of placement.
    pub gpus: u32,
    /// Weight of its evidence.
    pub weight: Weight,
    /// The pool of its host.
    pub pool: &'a str,
    /// The job whose failure led to it.
    pub job: Option<JobId>,
    /// User who owns the job.
    pub tenant: Option<&'a str>,
    /// Number of users whose failures support it.
    pub users: u32,
    /// Time of the proposal.
    pub at: TimeMs,
}

/// Current state of a pool, counted by the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolView {
    /// Number of its GPUs.
    pub gpus: u32,
    /// Number of its hosts.
    pub hosts: u32,
    /// Number of hosts that accept work.
    pub hosts_in_service: u32,
    /// GPUs kept out of placement by soft evidence.
    pub gpus_blocked_soft: u32,
    /// GPUs kept out of placement by hard evidence.
    pub gpus_blocked_hard: u32,
    /// Repairs in progress.
    pub repairs: u32,
    /// Of these, repairs in the same rack.
    pub repairs_in_rack: u32,
}

/// Permitted effect of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Fully allowed.
    Allowed,
    /// The component cannot work and gets nothing new, but no running task is killed and no repair starts.
    PlacementOnly(Refused),
    /// Refused.
    Refused(Refused),
}

/// The refusing rail with its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{rail}: it would be {would_be} of at most {limit}; {way_out}", way_out = remedy(*rail))]
pub struct Refused {
    /// The rail.
    pub rail: Rail,
    /// The value that would be reached.
    pub would_be: u64,
    /// The limit.
    pub limit: u64,
}

/// Suggested remedy.
const fn remedy(rail: Rail) -> &'static str {
    match rail {
        Rail::Hour | Rail::Outstanding | Rail::Breaker => {
            "look at the rule that blocks so much, then reset the breaker or block by hand"
        }
        Rail::Hard => "look at what the faults have in common, then drain or repair by hand",
        Rail::Job | Rail::Tenant | Rail::Users => {
            "it is blocked once failures of others confirm it, or by hand"
        }
        Rail::LastHost => "give the pool another host, or force it",
        Rail::Repairs | Rail::RackRepair => "it begins when another one is done",
        Rail::Incident => "it is judged again after the incident",
    }
}

#[cfg(test)]
mod tests;
