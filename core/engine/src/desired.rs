//! Computes the desired state of a host from the replicated state.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::command::StopReason;
use muster_model::desired::{
    CheckpointDuties, CheckpointRef, CountedFindings, DesiredState, GangHost, HealthDuties,
    MASTER_PORT_MIN, MASTER_PORTS, RankInfo, RestartReason, StopInstruction, TaskAssignment,
};
use muster_model::ids::{AttemptEpoch, HostId, Revision, TaskKey};
use muster_model::lifecycle::TaskPhase;

use crate::state::{Attempt, Running, State, TaskRun, Unit};

/// Returns the desired state of `host` as of `state`.
#[must_use]
pub fn of_host(state: &State, host: HostId) -> DesiredState {
    let mut tasks: Vec<TaskAssignment> = units_on(state, host)
        .flat_map(|running| assignments(state, host, running))
        .collect();
    tasks.sort_by_key(|assignment| assignment.key);
    DesiredState {
        leader: state.leadership.epoch,
        revision: state.revision,
        host,
        tasks,
        health: health_duties(state, host),
    }
}

fn health_duties(state: &State, id: HostId) -> HealthDuties {
    let Some(host) = state.host(id) else {
        return HealthDuties::default();
    };
    let gpus = || host.gpus.iter().map(|gpu| gpu.uuid);
    let recovery = state.recovery.as_ref();
    HealthDuties {
        acknowledged: state.health.acknowledged(id, host.incarnation),
        rules: state.health_rules.revision,
        rules_fingerprint: state.health_rules.sum,
        orders: state.health.orders(id, gpus()).collect(),
        counted: CountedFindings {
            recovered_at: recovery.map_or_else(Revision::default, |it| it.floor),
            findings: state
                .health
                .counted_findings(&state.health_rules.set, id, gpus()),
        },
    }
}

/// Returns the units that hold resources on a host, ascending.
pub fn units_on(state: &State, host: HostId) -> impl Iterator<Item = Running<'_>> {
    let units = state.index.units_on(host);
    units.filter_map(|id| Running::of(state, id))
}

/// Returns the tasks of one attempt on one host.
fn assignments(state: &State, host: HostId, running: Running<'_>) -> Vec<TaskAssignment> {
    let Running {
        job,
        index,
        unit,
        attempt,
    } = running;
    let ranks = Ranks::of(state, host, attempt);
    let here = attempt.tasks.iter().enumerate();
    here.filter(|(_, task)| task.host == host)
        .zip(0u32..)
        .filter_map(|((position, task), local_rank)| {
            let rank = attempt.rank(position);
            let (group, _) = job.spec.group_of(task.task)?;
            Some(TaskAssignment {
                key: TaskKey {
                    job: job.id,
                    task: task.task,
                },
                unit: index,
                epoch: attempt.epoch_of(task.task),
                attempt: attempt.number,
                restart_reason: restart_reason(unit, attempt, task),
                acknowledged: task.phase,
                command: group.command.clone(),
                environment: group.environment.clone(),
                working_directory: group.working_directory.clone(),
                gpus: task.gpus.clone(),
                cpus_milli: group.resources.cpus_milli,
                memory_mib: group.resources.memory_mib,
                execution: group.execution.clone(),
                rank: ranks.info(rank, local_rank),
                checkpoint: newest_checkpoint(unit),
                stop_grace_ms: job.spec.stop_grace_ms,
                partition_grace_ms: job.spec.partition_grace_ms,
                stop: stop_of(attempt, task),
                barrier: attempt.barrier.is_some(),
                released: is_released(attempt, task),
                gang_hosts: if job.spec.gang && rank == 0 {
                    gang_hosts(state, attempt)
                } else {
                    Vec::new()
                },
                suspended: job.is_paused() && stop_of(attempt, task).is_none(),
                warning: job.spec.lifecycle.warning,
                checkpoint_duties: care(state, unit, attempt, position == 0),
                user: job.spec.user.clone(),
            })
        })
        .collect()
}

/// Returns the restart reason of a task: the attempt's, unless it is a replacement member.
fn restart_reason(unit: &Unit, attempt: &Attempt, task: &TaskRun) -> RestartReason {
    let joined = attempt.joined(task.task);
    joined.map_or(unit.restart_reason, |joined| joined.reason)
}

/// Returns the stop order of a task: its attempt's, or its own.
fn stop_of(attempt: &Attempt, task: &TaskRun) -> Option<StopInstruction> {
    let leaving = attempt.leaving().filter(|it| it.task == task.task);
    let own = leaving.map(|leaving| &leaving.order);
    attempt.stop.as_ref().or(own).map(|order| StopInstruction {
        reason: reason_word(&order.reason).to_owned(),
        grace_ms: order.grace_ms,
    })
}

/// Whether a prepared task may start. A replacement member joins a released gang: it starts once the state
/// records it as prepared, and with that its port if it is rank 0.
fn is_released(attempt: &Attempt, task: &TaskRun) -> bool {
    let is_prepared = attempt.joined(task.task).is_none() || task.phase != TaskPhase::Assigned;
    is_prepared && attempt.barrier.is_some_and(|it| it.released_at.is_some())
}

fn care(state: &State, unit: &Unit, attempt: &Attempt, is_first: bool) -> CheckpointDuties {
    let hosts = attempt.hosts().len();
    let known = CheckpointDuties {
        interval_ms: state.reliability.advice_ms(unit, hosts),
        mean_time_ms: Some(state.reliability.mean_time_ms(hosts)),
        ..CheckpointDuties::default()
    };
    if !is_first || unit.removals.is_empty() {
        return known;
    }
    let removals = unit.removals.iter().map(|removal| CheckpointRef {
        step: removal.step,
        path: removal.path.clone(),
    });
    let kept = unit.checkpoints.iter();
    CheckpointDuties {
        removals: removals.collect(),
        kept: kept.map(|checkpoint| checkpoint.path.clone()).collect(),
        ..known
    }
}

fn newest_checkpoint(unit: &Unit) -> Option<CheckpointRef> {
    unit.newest_checkpoint().map(|checkpoint| CheckpointRef {
        step: checkpoint.step,
        path: checkpoint.path.clone(),
    })
}

/// Returns an attempt's hosts in rank order with their number of tasks; a member whose place is vacant counts
/// at its former host.
fn gang_hosts(state: &State, attempt: &Attempt) -> Vec<GangHost> {
    let mut slots: BTreeMap<HostId, u32> = BTreeMap::new();
    for task in attempt.runs() {
        *slots.entry(task.host).or_default() += 1;
    }
    let hosts = nodes(attempt).into_iter();
    hosts
        .map(|host| GangHost {
            address: state
                .host(host)
                .map_or_else(String::new, |host| host.address.clone()),
            slots: slots.get(&host).copied().unwrap_or(0),
        })
        .collect()
}

/// Returns an attempt's hosts in rank order; a member whose place is vacant counts at its former host.
fn nodes(attempt: &Attempt) -> Vec<HostId> {
    if attempt.vacancy().is_none() {
        return attempt.hosts();
    }
    let mut seen = BTreeSet::new();
    let hosts = attempt.runs().map(|run| run.host);
    hosts.filter(|host| seen.insert(*host)).collect()
}

/// Values shared by an attempt's tasks on one host.
struct Ranks {
    world_size: u32,
    node_rank: u32,
    nodes: u32,
    master_address: String,
    master_port: u16,
    awaits_port: bool,
}

impl Ranks {
    fn of(state: &State, host: HostId, attempt: &Attempt) -> Self {
        // Nodes are numbered in rank order, so that rank 0 is on node 0.
        let nodes = nodes(attempt);
        let master = nodes.first().and_then(|host| state.host(*host));
        let chosen = attempt.barrier.and_then(|barrier| barrier.master_port);
        let node_rank = nodes.iter().position(|node| *node == host);
        Self {
            world_size: as_u32(attempt.runs().count()),
            node_rank: as_u32(node_rank.unwrap_or(0)),
            nodes: as_u32(nodes.len()),
            master_address: master.map(|host| host.address.clone()).unwrap_or_default(),
            master_port: chosen.unwrap_or_else(|| master_port(attempt.epoch)),
            awaits_port: awaits_port(attempt),
        }
    }

    fn info(&self, rank: usize, local_rank: u32) -> RankInfo {
        RankInfo {
            rank: as_u32(rank),
            world_size: self.world_size,
            local_rank,
            node_rank: self.node_rank,
            nodes: self.nodes,
            master_address: self.master_address.clone(),
            master_port: self.master_port,
            awaits_port: self.awaits_port,
        }
    }
}

/// Whether the known port belongs to a former rank 0. Without a reserved port, all members know the port
/// beforehand.
fn awaits_port(attempt: &Attempt) -> bool {
    let Some(first) = attempt.runs().next().filter(|_| attempt.barrier.is_some()) else {
        return false;
    };
    let is_vacant = attempt
        .vacancy()
        .is_some_and(|vacancy| vacancy.run.task == first.task);
    let has_joined = attempt.joined(first.task).is_some();
    is_vacant || has_joined && first.phase == TaskPhase::Assigned
}

/// Returns the default rendezvous port of an attempt, used until a free one is reserved: consecutive attempts
/// get different ones.
#[must_use]
pub fn master_port(epoch: AttemptEpoch) -> u16 {
    let offset = u16::try_from(epoch.get() % u64::from(MASTER_PORTS)).unwrap_or(0);
    MASTER_PORT_MIN + offset
}

/// Returns the reason word written to a task's flag file.
fn reason_word(reason: &StopReason) -> &'static str {
    match reason {
        StopReason::Cancelled => "cancel",
        StopReason::MemberFailed => "user",
        StopReason::MemberLost
        | StopReason::GpuFault { .. }
        | StopReason::HostFault { .. }
        | StopReason::AssemblyTimeout
        | StopReason::NotSwapped => "infra",
        StopReason::Drain { .. } => "drain",
        StopReason::Preempted | StopReason::Defragmented => "preempt",
        StopReason::TimeLimit => "run_time",
        StopReason::Suspended => "suspend",
    }
}

fn as_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
