//! How much harm health itself may do: budgets, a breaker, incidents, and the last host of a pool.
//!
//! Part of the replicated state, and asked by `apply`: two proposals of one moment, or of an old and a new leader, must not
//! exceed a budget together.

mod breaker;
mod incidents;
mod ledger;

use muster_model::health::{Component, Scope, Weight};
use muster_model::ids::{HostId, JobId};
use muster_model::time::TimeMs;
use muster_model::word_enum;
use serde::{Deserialize, Serialize};

pub use self::breaker::Breaker;
pub use self::incidents::{Group, GroupKind, Incident, Incidents};
pub use self::ledger::{Rails, RailsLimits};

word_enum! {
    /// What can refuse a block or a repair.
    Rail {
        /// Too much of the pool was newly blocked within an hour.
        Hour = "soft_blocks_in_an_hour",
        /// Too much of the pool is blocked by soft evidence.
        Outstanding = "soft_blocks_outstanding",
        /// The breaker is tripped.
        Breaker = "breaker",
        /// So much of the pool is broken that a person must look before anything is killed or repaired.
        Hard = "hard_blocks",
        /// One job has caused as many soft blocks as it may.
        Job = "job",
        /// One tenant has.
        Tenant = "tenant",
        /// Only one user's failures speak for it.
        Users = "users",
        /// It is the last host of its pool.
        LastHost = "last_host",
        /// As many repairs are under way as may be.
        Repairs = "repairs",
        /// One is under way in the rack.
        RackRepair = "repair_in_rack",
        /// It is part of an incident.
        Incident = "incident",
    }
}

/// A block that something automatic wants to put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal<'a> {
    /// On what.
    pub component: &'a Component,
    /// Its host.
    pub host: HostId,
    /// How much.
    pub scope: Scope,
    /// How many GPUs it takes out.
    pub gpus: u32,
    /// How sure it is.
    pub weight: Weight,
    /// The pool of its host.
    pub pool: &'a str,
    /// The job whose failure led to it.
    pub job: Option<JobId>,
    /// Whose job.
    pub tenant: Option<&'a str>,
    /// Users whose failures speak for it.
    pub users: u32,
    /// When.
    pub at: TimeMs,
}

/// What a pool is at the moment, counted by who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolView {
    /// Its GPUs.
    pub gpus: u32,
    /// Its hosts.
    pub hosts: u32,
    /// Hosts that take work.
    pub hosts_in_service: u32,
    /// GPUs that soft evidence keeps out of placement.
    pub gpus_blocked_soft: u32,
    /// GPUs that hard evidence keeps out.
    pub gpus_blocked_hard: u32,
    /// Repairs under way.
    pub repairs: u32,
    /// Of them in the same rack.
    pub repairs_in_rack: u32,
}

/// What a block may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// All of it.
    Allowed,
    /// The component cannot work and gets nothing new, but nothing that runs is killed and no repair begins.
    PlacementOnly(Refused),
    /// Nothing.
    Refused(Refused),
}

/// Which rail refused, and by what figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{rail}: it would be {would_be} of at most {limit}; {way_out}", way_out = way_out(*rail))]
pub struct Refused {
    /// Which.
    pub rail: Rail,
    /// What it would come to.
    pub would_be: u64,
    /// What is allowed.
    pub limit: u64,
}

/// What would help.
const fn way_out(rail: Rail) -> &'static str {
    match rail {
        Rail::Hour | Rail::Outstanding | Rail::Breaker => {
            "look at the rule that blocks so much, then reset the breaker or block by hand"
        }
        Rail::Hard => "look at what the faults have in common, then drain or repair by hand",
        Rail::Job | Rail::Tenant | Rail::Users => {
            "it is blocked once failures of others speak for it, or by hand"
        }
        Rail::LastHost => "give the pool another host, or force it",
        Rail::Repairs | Rail::RackRepair => "it begins when another one is done",
        Rail::Incident => "it is judged anew once the incident is over",
    }
}

#[cfg(test)]
mod tests;
