//! `muster scheduler`.

use std::cell::Cell;

use clap::Args;
use muster_scheduler::{Error, SchedulerConfig};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::service;
use crate::settings::SettingsArguments;

/// `muster scheduler`
///
/// Runs until it is told to stop: the first SIGTERM or SIGINT hands leadership over and stops
/// gracefully, the second one ends the process at once. SIGHUP reads the settings anew.
#[derive(Debug, Args)]
pub(crate) struct Scheduler {
    #[command(flatten)]
    settings: SettingsArguments<SchedulerConfig>,
}

impl Scheduler {
    /// Does it.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let is_removed = Cell::new(false);
        let ended =
            service::run_with_settings(self.settings.source()?, |settings, shutdown| async {
                let ended = muster_scheduler::run_reloading(settings, shutdown.requested()).await;
                is_removed.set(matches!(ended, Err(Error::Removed { .. })));
                ended
            });
        ended.map_err(|failure| match is_removed.get() {
            true => failure.exiting(Exit::Removed),
            false => failure,
        })
    }
}
