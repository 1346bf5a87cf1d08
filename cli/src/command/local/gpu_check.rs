//! `muster gpu check`.

use clap::Args;

use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;

/// `muster gpu check`
#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    checked: muster_gpu_check::Options,
}

impl Check {
    /// Runs in this process: a driver that hangs blocks nothing else.
    pub(crate) fn run(self, options: &Options) -> Result<Exit, Failure> {
        let report = muster_gpu_check::check(&self.checked);
        options.screen().report(&report.to_string())?;
        Ok(Exit::Passed(report.exit_code()))
    }
}
