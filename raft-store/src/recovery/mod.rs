//! Backups, disaster recovery, and earlier states.

pub mod backup;
pub(super) mod past;
pub(super) mod refound;
pub(super) mod remains;
