//! What must be so once all is healed: whatever hosts found is heard, and no rule speaks against what is well by its word.

use std::time::Duration;

use muster_engine::state::State;
use muster_model::health::{Component, ComponentKind};
use tokio::time::{Instant, sleep};

use crate::check::Misplaced;
use crate::sim::host::SimHost;
use crate::sim::report::Violation;
use crate::sim::world::World;

/// Beats within which hosts that are well have said so: more than any window of readings that ends by their number, and a boot.
const HEALED_BEATS: u64 = 60;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);

impl World {
    /// How long what is healed may count as ill.
    pub(super) fn healed_max(&self) -> Duration {
        let beat_ms = self.options.scale.tempo.timings().beat_ms;
        Duration::from_millis(HEALED_BEATS * beat_ms)
    }

    /// Waits until everything that hosts found is heard and nothing counts as ill that is not, but not beyond what may take.
    pub(super) async fn heal(&self, repaired: Instant) {
        let deadline = repaired + self.healed_max();
        while Instant::now() < deadline && self.goes_on() && !self.is_healed() {
            sleep(LOOK).await;
        }
    }

    fn is_healed(&self) -> bool {
        self.hosts.iter().all(SimHost::is_heard) && self.forgotten().is_empty()
    }

    /// All was repaired long enough ago.
    pub(super) fn judge_healed(&self) {
        for host in self.hosts.iter().filter(|host| !host.is_heard()) {
            let stuck = format!("what {} found is never heard", host.name());
            self.judges.violate(Violation::Stuck(stuck));
        }
        for (rule, component) in self.forgotten() {
            let forgotten = Misplaced::Forgotten { rule, component };
            self.judges.violate(Violation::Misplaced(forgotten));
        }
    }

    /// Rules that speak against hosts or adapters whose agents know of nothing, though all that they found was heard.
    fn forgotten(&self) -> Vec<(String, Component)> {
        let up = self.members_up();
        let newest = { up.iter() }.max_by_key(|(_, handle)| handle.with_state(|it| it.revision));
        let all = newest.map(|(_, handle)| handle.with_state(|state| self.forgotten_in(state)));
        all.unwrap_or_default()
    }

    fn forgotten_in(&self, state: &State) -> Vec<(String, Component)> {
        let mut forgotten = Vec::new();
        for (component, condition) in state.health.conditions() {
            let (Component::Host(id) | Component::Nic { host: id, .. }) = component else {
                continue;
            };
            let name = state.host(*id).map(|host| &*host.name);
            let mut machines = self.hosts.iter();
            let machine = machines.find(|machine| name == Some(machine.name().as_str()));
            let Some(machine) = machine.filter(|machine| machine.is_heard()) else {
                continue;
            };
            let holds = condition.holds.iter().map(|held| &held.rule);
            let suspects = condition.suspected.iter().map(|it| &it.rule);
            let is_hosts_word = |rule: &&String| {
                // Of a rack others say more, and of what a host went through the state does.
                let of = state.health_rules.set.rule(rule).map(|rule| rule.component);
                matches!(of, Some(ComponentKind::Host | ComponentKind::Nic))
                    && condition.phase.accepts_work()
                    && SimHost::can_find(rule)
            };
            let spoken = holds.chain(suspects).filter(is_hosts_word);
            let in_vain = spoken.filter(|rule| !machine.is_ill_by(rule, component));
            forgotten.extend(in_vain.map(|rule| (rule.clone(), component.clone())));
        }
        forgotten
    }
}
