//! Commands proposed in one step of the leader, and the recipients of their outcomes.

use std::sync::Arc;

use muster_engine::apply::Applied;
use muster_engine::state::State;
use muster_model::command::{Command, HealthCommand, HostCommand, HostRegistration};
use muster_model::health::Severity;
use muster_model::ids::LeadershipEpoch;
use muster_model::time::TimeMs;
use muster_planner::Plan;
use muster_raft_store::{Handle, ProposeError};

use crate::leader::session::SessionId;

/// Commands in one proposal; larger batches are several proposals in order.
pub const PROPOSAL_COMMANDS_MAX: usize = 1_024;
/// Task placements in one proposal: about 1 MiB encoded.
pub const PROPOSAL_TASKS_MAX: usize = 16_384;

/// Commands of one step, in order.
#[derive(Debug, Default)]
pub(super) struct CommandBatch {
    commands: Vec<Command>,
    registrations: Vec<(usize, SessionId)>,
    steps: std::ops::Range<usize>,
}

/// Recipients of the outcomes.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// Position of a registration's outcome, and its stream.
    pub(super) registrations: Vec<(usize, SessionId)>,
    /// Positions of the outcomes of the plan's steps.
    pub(super) steps: std::ops::Range<usize>,
    /// Findings of workers (degraded or broken), with the time of each.
    pub(super) found: Vec<(Severity, TimeMs)>,
}

impl CommandBatch {
    pub(super) const fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub(super) const fn len(&self) -> usize {
        self.commands.len()
    }

    pub(super) fn register(
        &mut self,
        leader: LeadershipEpoch,
        session: SessionId,
        registration: Arc<HostRegistration>,
    ) {
        self.registrations.push((self.commands.len(), session));
        self.commands.push(Command::Host(HostCommand::RegisterHost {
            leader,
            registration,
        }));
    }

    pub(super) fn extend(&mut self, commands: Vec<Command>) {
        self.commands.extend(commands);
    }

    pub(super) fn add_plan(&mut self, plan: Plan) {
        let start = self.commands.len();
        self.commands.extend(plan.steps);
        self.steps = start..self.commands.len();
    }

    /// Splits into proposals within the limits, and the recipients of their outcomes.
    pub(super) fn into_proposals(self) -> (Vec<Vec<Command>>, Waiters) {
        let mut proposals = Vec::new();
        let mut current = Vec::new();
        let mut tasks = 0;
        let mut found = Vec::new();
        for command in self.commands {
            if let Command::Health(HealthCommand::Report { findings, .. }) = &command {
                let bad = findings
                    .iter()
                    .filter(|it| it.severity >= Severity::Degraded);
                found.extend(bad.map(|it| (it.severity, it.at)));
            }
            let weight = match &command {
                Command::Place(placement) => placement.tasks.len(),
                Command::Claim(claiming) => claiming.tasks.len() + claiming.victims.len(),
                _ => 1,
            };
            let is_full = current.len() >= PROPOSAL_COMMANDS_MAX
                || (!current.is_empty() && tasks + weight > PROPOSAL_TASKS_MAX);
            if is_full {
                proposals.push(std::mem::take(&mut current));
                tasks = 0;
            }
            tasks += weight;
            current.push(command);
        }
        if !current.is_empty() {
            proposals.push(current);
        }
        (
            proposals,
            Waiters {
                registrations: self.registrations,
                steps: self.steps,
                found,
            },
        )
    }
}

/// Proposes in order and returns all outcomes, in order.
///
/// # Errors
/// The first proposal's error; later ones may nevertheless have taken effect.
pub(super) async fn propose_all(
    handle: Handle<State>,
    proposals: Vec<Vec<Command>>,
) -> Result<Vec<Applied>, ProposeError> {
    // `join_all` polls in order, and a proposal is queued at its first poll: the order holds.
    let answers = proposals
        .into_iter()
        .map(|commands| handle.propose(commands));
    let mut outcomes = Vec::new();
    for answer in futures::future::join_all(answers).await {
        outcomes.extend(answer?);
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use muster_model::health::{Component, Finding};
    use muster_model::ids::HostId;

    use super::*;

    #[test]
    fn the_time_of_each_fault_is_kept_until_its_report_is_committed() {
        let finding = |severity, at| Finding {
            sequence: at,
            rule: "ecc_unc_volatile".to_owned(),
            component: Component::Host(HostId(1)),
            severity,
            metric: String::new(),
            measured: 1,
            code: None,
            cluster: None,
            evidence: String::new(),
            at: TimeMs(at),
        };
        let mut batch = CommandBatch::default();
        batch.extend(vec![Command::Health(HealthCommand::Report {
            leader: LeadershipEpoch(1),
            host: HostId(1),
            incarnation: 1,
            findings: vec![
                finding(Severity::Warn, 3),
                finding(Severity::Fatal, 5),
                finding(Severity::Healthy, 7),
            ],
        })]);
        let (_, waiters) = batch.into_proposals();
        assert_eq!(waiters.found, [(Severity::Fatal, TimeMs(5))]);
    }

    #[test]
    fn a_large_batch_is_split_in_order() {
        let mut batch = CommandBatch::default();
        batch.extend(vec![
            Command::Prune {
                leader: LeadershipEpoch(1)
            };
            2 * PROPOSAL_COMMANDS_MAX + 1
        ]);
        let (proposals, _) = batch.into_proposals();
        let sizes: Vec<usize> = proposals.iter().map(Vec::len).collect();
        assert_eq!(sizes, vec![PROPOSAL_COMMANDS_MAX, PROPOSAL_COMMANDS_MAX, 1]);
    }
}
