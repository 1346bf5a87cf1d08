//! Backups, disaster recovery, and earlier states.

pub mod backup;
pub(super) mod disaster_recovery;
pub(super) mod past;
pub(super) mod remains;
