//! Oracles: what the outside world saw, judged without asking the scheduler.

mod acknowledged;
mod exclusivity;

pub use acknowledged::{Acknowledged, LostWrite};
pub use exclusivity::{Exclusivity, Overlap, Owner};
