//! `muster job explain`.

use clap::Args;
use muster_documents::Explanation;
use muster_model::ids::JobId;

use crate::connection::{Moment, Options};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, render_document};
use crate::view::explanation;

/// `muster job explain`
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The job, by id
    job: u64,
    #[command(flatten)]
    moment: Moment,
}

impl Explain {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = self.moment.connect(options).await?;
        let screen = options.screen();
        let consistency = self.moment.consistency();
        let answer = client.explain_job(JobId(self.job), consistency).await?;
        let explained = Explanation::from(answer);
        screen.data(&match screen.format {
            Format::Table | Format::Wide => explanation::render(&explained, screen.now()),
            Format::Name => format!("{}\n", self.job),
            format => render_document(format, &explained)?,
        })?;
        Ok(Exit::Ok)
    }
}
