//! Pending reasons without their figures, used as metric labels.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A [`crate::Blocker`] without its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Reason {
    /// A back-off is not over.
    BackOff,
    /// The job is being cancelled.
    Cancelling,
    /// The job is suspended.
    Suspended,
    /// Other jobs have to end first.
    Dependencies,
    /// The gang keeps running with one vacant member.
    Vacancy,
    /// The job already runs as many units as it allows at a time.
    TasksAtOnce,
    /// The cluster could never hold it.
    Impossible,
    /// Too few GPUs are free, in total or in large enough pieces.
    Resources,
    /// Too few CPUs or too little memory is free on the hosts with free GPUs.
    Room,
    /// No cell of the required level has room.
    Topology,
    /// Too few hosts have room within the limit of tasks per host.
    TasksPerHost,
    /// Other jobs run on the hosts that it requires exclusively.
    OwnHosts,
    /// The hosts or GPUs that it names have no room.
    Named,
    /// Only hosts that it excludes have room.
    Excluded,
    /// Only GPUs of models that it does not accept are free.
    Model,
    /// Its virtual cluster has no cells for it.
    Cells,
    /// The free resources are reserved for others.
    ReservedByOthers,
    /// The search for room reached its bound.
    SearchBound,
    /// A limit of its queue or user, or the guarantee of a queue that does not borrow.
    Limit,
    /// Resources are reserved for it and not free yet.
    Reserved,
    /// Others are being moved to make contiguous room for it.
    Moving,
    /// Its queue does not backfill, and a job ahead waits for the same hosts.
    Behind,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 22] = [
        Self::BackOff,
        Self::Cancelling,
        Self::Suspended,
        Self::Dependencies,
        Self::Vacancy,
        Self::TasksAtOnce,
        Self::Impossible,
        Self::Resources,
        Self::Room,
        Self::Topology,
        Self::TasksPerHost,
        Self::OwnHosts,
        Self::Named,
        Self::Excluded,
        Self::Model,
        Self::Cells,
        Self::ReservedByOthers,
        Self::SearchBound,
        Self::Limit,
        Self::Reserved,
        Self::Moving,
        Self::Behind,
    ];

    /// Name in metrics and documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BackOff => "back_off",
            Self::Cancelling => "cancelling",
            Self::Suspended => "suspended",
            Self::Dependencies => "dependencies",
            Self::Vacancy => "vacancy",
            Self::TasksAtOnce => "tasks_at_once",
            Self::Impossible => "impossible",
            Self::Resources => "resources",
            Self::Room => "room",
            Self::Topology => "topology",
            Self::TasksPerHost => "tasks_per_host",
            Self::OwnHosts => "own_hosts",
            Self::Named => "named",
            Self::Excluded => "excluded",
            Self::Model => "model",
            Self::Cells => "cells",
            Self::ReservedByOthers => "reserved_by_others",
            Self::SearchBound => "search_bound",
            Self::Limit => "limit",
            Self::Reserved => "reserved",
            Self::Moving => "moving",
            Self::Behind => "behind",
        }
    }
}

/// Waiting jobs by reason; a missing entry means 0.
pub type WaitingByReason = BTreeMap<Reason, u64>;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Reason;

    /// The documentation that users read.
    const DOCUMENT: &str = include_str!("../../../docs/explain.md");

    #[test]
    fn every_reason_has_a_unique_documented_name() {
        let names: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
        for name in names {
            let row = format!("| `{name}` |");
            assert!(
                DOCUMENT.contains(&row),
                "docs/explain.md does not mention {name}"
            );
        }
    }
}
