//! Events for watchers, each with the revision that caused it.
//!
//! All events of one revision are delivered together or not at all.

mod access;
mod fact;
mod kind;
mod note;
mod of_job;
mod replica;

pub use access::AccessChange;
pub use fact::Event;
pub use kind::EventKind;
pub use note::HealthNote;
pub use replica::ReplicaChanged;
