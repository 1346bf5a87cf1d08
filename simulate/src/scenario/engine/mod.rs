//! Scripts executed on the real engine: `plan` and `apply`, with an `audit` after every command.

mod cluster;
mod driver;
mod expectations;
mod failure;
mod statements;
mod timers;
mod workers;

pub(crate) use cluster::{BEGIN, Entry};
pub(crate) use driver::Driver;
pub use failure::{Failure, FailureAt};
