//! Checkers over externally observed behaviour, independent of the scheduler's own state.

mod acknowledged;
mod agreement;
mod assembly;
mod blame;
mod closed;
mod exclusivity;
mod fencing;
mod lives;
mod obedience;
mod raft;
mod spacing;
mod success;
mod watching;

pub use acknowledged::{Acknowledged, LostWrite};
pub use agreement::{Agreement, Disagreement};
pub use assembly::{Assembly, EarlyStart};
pub use blame::{FalseBlame, false_blame};
pub use closed::{Closed, Misplaced};
pub use exclusivity::{Exclusivity, Gang, Overlap, Owner};
pub use fencing::{Fencing, StaleCommand};
pub use lives::{LivedAtOnce, Lives, LivesError, Repeated};
pub use obedience::{Obedience, StaleOrder};
pub use raft::{Entry, RaftBreach, RaftRules};
pub use spacing::{LOOKED_AT_MAX, looked_at_one_in};
pub use success::{PhantomSuccess, phantom_successes};
pub use watching::{WatchGap, Watching};
