//! `muster scheduler`.

use std::cell::Cell;
use std::time::Duration;

use clap::Args;
use muster_scheduler::{Error, SchedulerConfig};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::service;
use crate::settings::SettingsArguments;

/// Longest wait for the database of a stopped replica to close. A process that exits while one of its threads
/// is still in RocksDB is aborted: RocksDB's static data is destroyed before the thread ends.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// `muster scheduler`
///
/// Runs until it is stopped: the first SIGTERM or SIGINT hands leadership over and stops gracefully, the
/// second one ends the process at once. SIGHUP reloads the settings.
#[derive(Debug, Args)]
pub(crate) struct Scheduler {
    #[command(flatten)]
    settings: SettingsArguments<SchedulerConfig>,
}

impl Scheduler {
    /// Runs the command.
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
