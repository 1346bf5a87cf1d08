//! Clock skew against the leader. If most hosts report it, the leader's clock is wrong.

use muster_model::health::{Component, Phase};

use crate::component::Condition;
use crate::guard_rails::GroupKind;
use crate::state::{Circumstances, Effect, HealthState};

/// The rule about clock skew.
pub(super) const CLOCK_SKEW: &str = "clock_skew";
/// Minimum number of hosts for a majority: two hosts that differ from the leader outvote it, one does not.
const HOSTS_MIN: u32 = 2;

impl HealthState {
    /// Whether more than half of all hosts report skew against the leader: then their clocks are right.
    pub(super) fn doubts_the_leaders_clock(&self, place: &Circumstances<'_>) -> bool {
        let groups = place.groups.iter();
        let of_cluster = groups.filter(|(group, _)| group.kind == GroupKind::Cluster);
        let hosts = of_cluster
            .map(|(_, hosts)| *hosts)
            .max()
            .unwrap_or_default();
        let far_off = self
            .conditions
            .iter()
            .filter(|(of, condition)| matches!(of, Component::Host(_)) && is_far(condition));
        let far = u32::try_from(far_off.count()).unwrap_or(u32::MAX);
        hosts >= HOSTS_MIN && far > hosts / 2
    }

    /// Lifts the restrictions of the clock rule.
    pub(super) fn lift_clock_restrictions(&mut self, place: &Component) -> Vec<Effect> {
        let known = self.conditions.iter();
        let held: Vec<Component> = known
            .filter(|(_, it)| it.holds.iter().any(|held| held.rule == CLOCK_SKEW))
            .map(|(of, _)| of.clone())
            .collect();
        let mut effects = Vec::new();
        for component in held {
            if let Some(condition) = self.conditions.get_mut(&component) {
                condition.lift_restriction(CLOCK_SKEW);
            }
            effects.push(Effect::Held(component));
        }
        let reason = "most hosts differ from the leader's clock: the leader's clock is wrong, and no host is \
                      restricted";
        effects.push(Effect::Alert(place.clone(), reason.to_owned()));
        effects
    }
}

/// Whether a host is known to have clock skew.
fn is_far(condition: &Condition) -> bool {
    let is_held = condition.holds.iter().any(|held| held.rule == CLOCK_SKEW);
    let accusation = condition.accusation();
    let is_suspect = condition.phase == Phase::Suspect
        && accusation.is_some_and(|accusation| accusation.rule == CLOCK_SKEW);
    is_held || is_suspect
}
