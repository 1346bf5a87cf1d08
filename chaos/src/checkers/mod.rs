//! Checkers over externally observed behaviour, independent of the scheduler's own state.

mod agreement;
mod attribution;
mod durability;
mod exclusivity;
mod fencing;
mod gang_start;
mod order_fencing;
mod placement_blocks;
mod raft;
mod run_records;
mod sampling;
mod success;
mod watch_delivery;

pub use agreement::{Agreement, Disagreement};
pub use attribution::{FalseAttribution, false_attribution};
pub use durability::{AcknowledgedWrites, LostWrite};
pub use exclusivity::{GpuLedger, Overlap, Owner, UnitAttempt};
pub use fencing::{Fencing, StaleCommand};
pub use gang_start::{Assembly, EarlyStart};
pub use order_fencing::{OrderFencing, StaleOrder};
pub use placement_blocks::{Misplaced, PlacementBlocks};
pub use raft::{Entry, RaftRules, RaftViolation};
pub use run_records::{ConcurrentAttempts, RepeatedWork, RunRecords, RunRecordsError};
pub use sampling::{LOOKED_AT_MAX, sampling_interval};
pub use success::{PhantomSuccess, phantom_successes};
pub use watch_delivery::{DeliveryError, WatchDeliveries};
