//! Backups, disaster recovery, and earlier states.

pub mod backup;
pub(super) mod disaster_recovery;
pub(super) mod offline_log;
pub(super) mod state_history;
