//! Checks after the last repair: all findings of hosts are acknowledged, and no rule holds a component that
//! reads healthy.

use std::time::Duration;

use muster_engine::state::State;
use muster_model::health::{Component, ComponentKind};
use tokio::time::{Instant, sleep};

use crate::checkers::Misplaced;
use crate::sim::host::SimHost;
use crate::sim::results::report::Violation;
use crate::sim::world::World;

/// Heartbeats within which healthy hosts have reported so: more than any window counted in readings, plus a
/// boot.
const HEALED_BEATS: u64 = 60;
/// Polling interval.
const LOOK: Duration = Duration::from_millis(500);

impl World {
    /// Maximum time for which a repaired component may count as faulty.
    pub(super) fn healed_max(&self) -> Duration {
        let heartbeat_ms = self.options.scale.tempo.timings().heartbeat_ms;
        Duration::from_millis(HEALED_BEATS * heartbeat_ms)
    }

    /// Waits until all findings are acknowledged and nothing healthy counts as faulty, up to the maximum
    /// time.
    pub(super) async fn heal(&self, repaired: Instant) {
        let deadline = repaired + self.healed_max();
        while Instant::now() < deadline && self.goes_on() && !self.is_healed() {
            sleep(LOOK).await;
        }
    }

    fn is_healed(&self) -> bool {
        self.hosts.iter().all(SimHost::is_acknowledged) && self.forgotten().is_empty()
    }

    /// Checks the state once the maximum time has passed.
    pub(super) fn judge_healed(&self) {
        for host in self.hosts.iter().filter(|host| !host.is_acknowledged()) {
            let stuck = format!("a finding of {} is never acknowledged", host.name());
            self.checkers.violate(Violation::Stuck(stuck));
        }
        for (rule, component) in self.forgotten() {
            let forgotten = Misplaced::StaleHold { rule, component };
            self.checkers.violate(Violation::Misplaced(forgotten));
        }
    }

    /// Rules that hold hosts or adapters without a finding known to their agents, although all findings are
    /// acknowledged.
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
            let Some(machine) = machine.filter(|machine| machine.is_acknowledged()) else {
                continue;
            };
            let holds = condition.holds.iter().map(|held| &held.rule);
            let suspects = condition.suspected.iter().map(|it| &it.rule);
            let is_reported_by_host = |rule: &&String| {
                // Findings on racks come from several hosts, and those on a host's history from the state.
                let of = state.health_rules.set.rule(rule).map(|rule| rule.component);
                matches!(of, Some(ComponentKind::Host | ComponentKind::Nic))
                    && condition.phase.accepts_work()
                    && SimHost::can_find(rule)
            };
            let by_host = holds.chain(suspects).filter(is_reported_by_host);
            let outdated = by_host.filter(|rule| !machine.is_faulty_by(rule, component));
            forgotten.extend(outdated.map(|rule| (rule.clone(), component.clone())));
        }
        forgotten
    }
}
