//! Defaults that this build ships and that must be in the log, so that replicas of other builds apply the
//! same: the health rules, and the defaults for jobs without settings of their own. The first leader proposes
//! them before anything that they apply to.

use muster_engine::state::State;
use muster_health::rules::RuleSet;
use muster_model::command::{Command, ConfigCommand, HealthCommand, JobDefaults};

use crate::leader::batch::CommandBatch;
use crate::leader::feature_level::readable;
use crate::leader::term::Term;
use crate::leader::{Clock, PeerLinks};

impl<P: PeerLinks, C: Clock> Term<'_, P, C> {
    /// Proposes the current rules to a cluster with older ones, and the defaults to a cluster without any.
    pub(super) fn set_defaults(&self, state: &State, batch: &mut CommandBatch) {
        let leader = self.fence.epoch;
        let mut commands = Vec::new();
        if state.health_rules.is_replaced_by(RuleSet::SHIPPED_VERSION) {
            commands.push(Command::Health(HealthCommand::ShipRules {
                leader,
                version: RuleSet::SHIPPED_VERSION,
                text: RuleSet::SHIPPED_TEXT.into(),
            }));
        }
        if state.job_defaults.is_none() {
            commands.push(Command::Config(ConfigCommand::SetJobDefaults {
                leader,
                defaults: JobDefaults::default(),
            }));
        }
        batch.extend(readable(commands, self.rounds.level()));
    }
}
