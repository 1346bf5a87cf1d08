//! Scripts executed on the real engine: `plan` and `apply`, with an `audit` after every command.

mod driver;
mod expectations;
mod failure;
mod log;
mod statements;
mod workers;

pub(crate) use driver::Driver;
pub use failure::{Failure, FailureAt};
pub(crate) use log::Entry;
