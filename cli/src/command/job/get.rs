//! `muster job get`.

use clap::Args;
use muster_documents::JobDetail;
use muster_model::ids::JobId;
use muster_proto::v1;

use crate::connection::{Moment, Options};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, render_document};
use crate::view::job_detail;

/// `muster job get`
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The job, by id
    job: u64,
    /// Show at most this many of its units
    #[arg(long, value_name = "COUNT", default_value = "100")]
    units: usize,
    #[command(flatten)]
    moment: Moment,
}

impl Get {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = self.moment.connect(options).await?;
        let screen = options.screen();
        let units_max = self.units.max(1);
        let consistency = self.moment.consistency();
        let detail = client
            .get_job(JobId(self.job), units_max, consistency)
            .await?;
        // Progress of tasks is only known for the present.
        let may_have_progress = !self.moment.is_past() && detail.units.iter().any(has_running_task);
        let revision = detail.revision.get();
        let mut detail = JobDetail::new(revision, detail.job, detail.units, detail.more_units);
        if may_have_progress {
            match client.job_progress(JobId(self.job)).await {
                Ok(reported) => detail.add_progress(&reported),
                // Optional data: everything required has been read.
                Err(error) => screen.progress(&error.to_string()),
            }
        }
        screen.data(&match screen.format {
            Format::Table | Format::Wide => job_detail::render(&detail, &screen),
            Format::Name => format!("{}\n", self.job),
            format => render_document(format, &detail)?,
        })?;
        Ok(Exit::Ok)
    }
}

/// Whether a task of the unit runs, and so may have reported progress.
fn has_running_task(unit: &v1::Unit) -> bool {
    let mut tasks = unit.attempt.iter().flat_map(|attempt| &attempt.tasks);
    tasks.any(|task| task.phase() == v1::TaskPhase::Running)
}
