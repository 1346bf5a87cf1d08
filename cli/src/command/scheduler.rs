//! `muster scheduler`.

use std::cell::Cell;
use std::time::Duration;

use clap::Args;
use muster_scheduler::{Error, SchedulerConfig};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::service;
use crate::settings::SettingsArguments;

/// How long a replica that has ended waits for its database to be closed. A process that ends while one of its threads is still
/// in RocksDB is aborted: RocksDB's static data is gone before the thread is.
const CLOSE_MAX: Duration = Duration::from_secs(5);

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
        let source = self.settings.source()?;
        let ended = service::run_with_settings(CLOSE_MAX, source, |settings, shutdown| async {
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
