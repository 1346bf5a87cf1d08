//! Events to watchers, on every replica; the token of a watch is a revision.
//!
//! One pump reads each event once from the replicated event log as it is applied and queues it to those
//! who asked for it, by job. A watch that resumes first reads the log up to where the pump is and is
//! then joined to it without a gap. Queues are bounded: a watcher that does not keep up is dropped and
//! told to go on from the newest revision that it received, here or on any other replica.

mod filter;
mod hub;
mod subscription;

pub(crate) use filter::WatchFilter;
pub(crate) use hub::{SubscribeError, WatchHub};
pub(crate) use subscription::{Subscription, WatchEnd};
