//! What counts for jobs that say nothing themselves: set once, as soon as every replica reads it.

use muster_core::command::{Command, JobDefaults};
use muster_core::state::State;

use crate::leader::batch::CommandBatch;
use crate::leader::feature_level::lowered;
use crate::leader::tenure::Tenure;
use crate::leader::{Clock, PeerLinks};

impl<P: PeerLinks, C: Clock> Tenure<'_, P, C> {
    /// Proposes the defaults to a cluster that has none.
    pub(super) fn set_defaults(&self, state: &State, batch: &mut CommandBatch) {
        if state.job_defaults.is_none() {
            let command = Command::SetJobDefaults {
                leader: self.fence.epoch,
                defaults: JobDefaults::default(),
            };
            batch.extend(lowered(vec![command], self.rounds.level()));
        }
    }
}
