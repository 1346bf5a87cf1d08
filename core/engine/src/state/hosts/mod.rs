//! Reliability and restrictions of hosts, derived from jobs.

pub(super) mod accused_hosts;
pub(super) mod avoided_hosts;
pub(super) mod excluded_hosts;
pub(super) mod pools;
pub(super) mod reliability;
