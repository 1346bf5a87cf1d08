//! Oracles: what the outside world saw, judged without asking the scheduler.

mod acknowledged;
mod agreement;
mod assembly;
mod exclusivity;
mod lives;
mod obedience;
mod success;

pub use acknowledged::{Acknowledged, LostWrite};
pub use agreement::{Agreement, Disagreement};
pub use assembly::{Assembly, EarlyStart};
pub use exclusivity::{Exclusivity, Gang, Overlap, Owner};
pub use lives::{LivedAtOnce, Lives, LivesError, Repeated};
pub use obedience::{Obedience, StaleOrder};
pub use success::{PhantomSuccess, phantom_successes};
