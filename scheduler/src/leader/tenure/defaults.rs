//! What this build brings along and the log must say, so that replicas of other builds read the same: the rules about health,
//! and what counts for jobs that say nothing themselves. Proposed as soon as every replica reads it.

use muster_engine::state::State;
use muster_health::rules::RuleSet;
use muster_model::command::{Command, HealthCommand, JobDefaults};

use crate::leader::batch::CommandBatch;
use crate::leader::feature_level::lowered;
use crate::leader::tenure::Tenure;
use crate::leader::{Clock, PeerLinks};

impl<P: PeerLinks, C: Clock> Tenure<'_, P, C> {
    /// Proposes the rules to a cluster that follows older ones, and the defaults to one that has none. Nothing is said of health
    /// before there are defaults, so that the rules come first.
    pub(super) fn set_defaults(&self, state: &State, batch: &mut CommandBatch) {
        let leader = self.fence.epoch;
        let mut commands = Vec::new();
        if state.health_rules.give_way_to(RuleSet::SHIPPED_VERSION) {
            commands.push(Command::Health(HealthCommand::ShipRules {
                leader,
                version: RuleSet::SHIPPED_VERSION,
                text: RuleSet::SHIPPED_TEXT.into(),
            }));
        }
        if state.job_defaults.is_none() {
            commands.push(Command::SetJobDefaults {
                leader,
                defaults: JobDefaults::default(),
            });
        }
        batch.extend(lowered(commands, self.rounds.level()));
    }
}
