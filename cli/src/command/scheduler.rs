//! `muster scheduler`.

use clap::Args;
use muster_scheduler::SchedulerConfig;

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
        service::run_with_settings(self.settings.source()?, |settings, shutdown| {
            muster_scheduler::run_reloading(settings, shutdown.requested())
        })
    }
}
