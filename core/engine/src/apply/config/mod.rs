//! Configuration: queues, topology, guarantees and usage history.

pub(super) mod capacity;
pub(super) mod configuration;
pub(super) mod history;
pub(super) mod queues;

use muster_model::command::ConfigCommand;
use muster_model::rejection::Rejection;

use crate::apply::Step;
use crate::state::Answer;

impl Step<'_> {
    pub(super) fn config(&mut self, command: &ConfigCommand) -> Result<Answer, Rejection> {
        match command {
            ConfigCommand::SetQueue {
                request,
                name,
                live_jobs_max,
            } => self.set_queue(*request, name, *live_jobs_max),
            ConfigCommand::ConfigureQueues {
                request,
                author,
                tree,
            } => self.configure_queues(*request, author, tree),
            ConfigCommand::SetTopology {
                request,
                author,
                topology,
            } => self.set_topology(*request, author, topology),
            ConfigCommand::SetJobDefaults { defaults, .. } => Ok(self.set_job_defaults(*defaults)),
        }
    }
}
