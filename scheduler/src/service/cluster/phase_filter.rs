//! List filters by health phase of hosts and GPUs.

use muster_engine::state::State;
use muster_model::health::{Component, Phase};
use muster_model::ids::HostId;
use muster_proto::status;
use tonic::{Code, Status};

/// Filter by health phase.
#[derive(Debug)]
pub(crate) struct PhaseFilter {
    /// Matches any of these phases; all if empty.
    phases: Vec<Phase>,
    restricted_only: bool,
}

impl PhaseFilter {
    /// Parses the phases of a request: names, with `blocked` and `draining` for those by rules and
    /// by admins together.
    pub(crate) fn parse(names: &[String], restricted_only: bool) -> Result<Self, Status> {
        let mut phases = Vec::new();
        for name in names {
            let before = phases.len();
            let is_meant = |phase: &Phase| phase.name() == name || stem(*phase) == name;
            phases.extend(Phase::ALL.iter().copied().filter(is_meant));
            if phases.len() == before {
                return Err(unknown(name));
            }
        }
        Ok(Self {
            phases,
            restricted_only,
        })
    }

    /// Whether a component matches.
    pub(crate) fn has(&self, state: &State, component: &Component) -> bool {
        self.has_phase(state, component) && (!self.restricted_only || is_held(state, component))
    }

    /// Whether a host matches because of holds on it or its adapters.
    pub(crate) fn has_host(&self, state: &State, host: HostId) -> bool {
        let itself = Component::Host(host);
        let adapters = || state.health.adapters_of(host);
        self.has_phase(state, &itself)
            && (!self.restricted_only
                || is_held(state, &itself)
                || adapters().iter().any(|adapter| is_held(state, adapter)))
    }

    fn has_phase(&self, state: &State, component: &Component) -> bool {
        self.phases.is_empty() || self.phases.contains(&state.health.phase(component))
    }
}

/// The name of a phase without its source.
fn stem(phase: Phase) -> &'static str {
    let name = phase.name();
    name.split_once('(').map_or(name, |(stem, _)| stem)
}

fn is_held(state: &State, component: &Component) -> bool {
    let condition = state.health.condition(component);
    condition.is_some_and(|condition| !condition.holds.is_empty())
}

fn unknown(name: &str) -> Status {
    let shown: String = name.chars().take(64).collect();
    status::error(
        Code::InvalidArgument,
        "INVALID_REQUEST",
        &format!(
            "phases: unknown phase `{shown}`; known are {}",
            Phase::all_names()
        ),
        &[("field", "phases".to_owned())],
    )
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn phases_are_named_with_or_without_their_source() {
        let phases = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            PhaseFilter::parse(&names, false).unwrap().phases
        };
        assert_eq!(phases(&["blocked(auto)"]), [Phase::Blocked]);
        assert_eq!(phases(&["blocked"]), [Phase::Blocked, Phase::BlockedAdmin]);
        assert_eq!(
            phases(&["draining", "rma"]),
            [Phase::Draining, Phase::DrainingAdmin, Phase::Rma]
        );
        let refused = PhaseFilter::parse(&["sick".to_owned()], false).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains("probation"), "{refused}");
    }
}
