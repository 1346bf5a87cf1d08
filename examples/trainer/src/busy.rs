//! Stand-in for a job of a trace.

use std::time::Duration;

use crate::arguments::BusyArguments;
use crate::clock::pause;
use crate::outcome::Outcome;

/// Runs for the configured time.
pub(crate) fn run(arguments: &BusyArguments) -> Outcome {
    pause(Duration::from_millis(arguments.milliseconds));
    Outcome::Exit(arguments.exit_code)
}
