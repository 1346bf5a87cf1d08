//! What the leader wants a host to run: a state, not a stream of edges.
//!
//! Losing or repeating one changes nothing; the worker compares it with what it has and acts on the
//! difference. A task that is absent must not run.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::command::StopReason;
use muster_model::health::Order;
use muster_model::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, LeadershipEpoch, Revision, TaskIndex, UnitIndex,
};
use muster_model::lifecycle::TaskPhase;
use muster_model::spec::{Execution, StopWarning};
use serde::{Deserialize, Serialize};

use crate::state::{Attempt, Job, RestartReason, State, TaskRun, Unit};

/// Everything one host should run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredState {
    /// Fencing token: the worker refuses one older than the newest it has seen.
    pub leader: LeadershipEpoch,
    /// Revision of the state it was read from; within one leadership an older one is ignored.
    pub revision: Revision,
    /// The host it is for.
    pub host: HostId,
    /// Its tasks, ordered by job and task.
    pub tasks: Vec<TaskAssignment>,
    /// What is to be done about its health.
    #[serde(default)]
    pub health: HealthDuties,
}

/// What a worker is told about health.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthDuties {
    /// Up to which number its findings were heard: it need not repeat them.
    pub heard: u64,
    /// Which rules are in force, by the revision that set them; 0 for those that ship with Muster.
    pub rules: Revision,
    /// By what their file is known ([`RuleSet::sum_of`](muster_health::rules::RuleSet::sum_of)): a worker that has it fetches
    /// nothing. 0 for those that ship with Muster, and from leaders that do not say.
    #[serde(default)]
    pub rules_sum: u64,
    /// Repairs and checks that it is to carry out.
    pub orders: Vec<Order>,
}

/// One task that a worker should run, with everything needed to run it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAssignment {
    /// Job and task.
    pub key: TaskKey,
    /// The unit the task belongs to.
    pub unit: UnitIndex,
    /// The attempt: never started twice, never after a newer one.
    pub epoch: AttemptEpoch,
    /// Counts the unit's attempts from 1 (`MUSTER_ATTEMPT`).
    pub attempt: u32,
    /// Why it is run (`MUSTER_RESTART_REASON`).
    pub restart_reason: RestartReason,
    /// The phase that the replicated state has for it; a terminal one acknowledges the worker's report.
    pub acknowledged: TaskPhase,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The user's environment variables.
    pub environment: BTreeMap<String, String>,
    /// Absolute path; the task's own scratch folder if none.
    pub working_directory: Option<String>,
    /// GPUs it may use.
    pub gpus: Vec<GpuUuid>,
    /// Thousandths of CPUs it was given.
    pub cpus_milli: u32,
    /// Memory it was given, in MiB.
    pub memory_mib: u64,
    /// How it is run, beside its command.
    #[serde(default)]
    pub execution: Execution,
    /// Where it stands in its gang.
    pub rank: RankInfo,
    /// Newest committed checkpoint of the unit.
    pub checkpoint: Option<CheckpointRef>,
    /// Milliseconds between being asked to stop and being killed.
    pub stop_grace_ms: u64,
    /// Milliseconds it may go on without contact to any leader.
    pub partition_grace_ms: u64,
    /// Present if it should stop.
    pub stop: Option<StopInstruction>,
    /// Whether it waits, prepared, until its gang is released. Agents that do not know this begin it at once.
    #[serde(default)]
    pub barrier: bool,
    /// Whether its gang is released: all members are prepared, and `rank` is final.
    #[serde(default)]
    pub released: bool,
    /// The gang's hosts in the order of `node_rank`, for a launcher; only rank 0 of a gang is told.
    #[serde(default)]
    pub gang_hosts: Vec<GangHost>,
    /// Whether its processes stand still where they are. One that is told to stop goes on, so that it can.
    #[serde(default)]
    pub suspended: bool,
    /// A signal of the job's choice before it is terminated.
    #[serde(default)]
    pub warning: Option<StopWarning>,
    /// What is to be done about the unit's checkpoints.
    #[serde(default)]
    pub care: CheckpointCare,
    /// Whose job it is, by the name that a user proved or, in an open cluster, said. Empty from leaders that do not tell.
    #[serde(default)]
    pub user: String,
}

/// What is to be done about a unit's checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointCare {
    /// Those whose folders are to be removed; told to the unit's first task only.
    pub removals: Vec<CheckpointRef>,
    /// Paths of those that stay; nothing where nothing is to be removed.
    pub kept: Vec<String>,
    /// How often it had better save (`MUSTER_CKPT_INTERVAL_ADVICE`), in milliseconds; none while nobody knows how long a
    /// save takes.
    pub interval_ms: Option<u64>,
    /// Milliseconds between two failures of an attempt on as many hosts, by which its supervisor gives such advice from saves
    /// that it has measured itself; none from a leader that does not tell.
    #[serde(default)]
    pub mean_time_ms: Option<u64>,
}

/// A host of a gang, as a launcher wants to know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangHost {
    /// Where it is reached.
    pub address: String,
    /// The gang's tasks on it.
    pub slots: u32,
}

/// Where a gang meets and where its members are: what changes for those who go on when another one is swapped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendezvous {
    /// Address of rank 0's host (`MASTER_ADDR`).
    pub master_address: String,
    /// Port that rank 0 listens on (`MASTER_PORT`).
    pub master_port: u16,
    /// The gang's hosts in the order of `node_rank`; only rank 0 is told.
    #[serde(default)]
    pub hosts: Vec<GangHost>,
}

impl TaskAssignment {
    /// Where its gang meets.
    #[must_use]
    pub fn rendezvous(&self) -> Rendezvous {
        Rendezvous {
            master_address: self.rank.master_address.clone(),
            master_port: self.rank.master_port,
            hosts: self.gang_hosts.clone(),
        }
    }

    /// Whether its gang meets there.
    #[must_use]
    pub fn meets_at(&self, place: &Rendezvous) -> bool {
        let Rendezvous {
            master_address,
            master_port,
            hosts,
        } = place;
        self.rank.master_port == *master_port
            && self.rank.master_address == *master_address
            && self.gang_hosts == *hosts
    }
}

/// What distributed frameworks want to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankInfo {
    /// Position among all tasks of the unit (`RANK`).
    pub rank: u32,
    /// Number of tasks of the unit (`WORLD_SIZE`).
    pub world_size: u32,
    /// Position among the unit's tasks on this host (`LOCAL_RANK`).
    pub local_rank: u32,
    /// Position of this host among the unit's hosts (`NODE_RANK`).
    pub node_rank: u32,
    /// Number of the unit's hosts.
    pub nodes: u32,
    /// Address of rank 0's host (`MASTER_ADDR`).
    pub master_address: String,
    /// Port for rank 0 to listen on (`MASTER_PORT`).
    pub master_port: u16,
    /// Whether another rank 0 is to come, or has come and has not said yet which port it keeps free: address and port do not belong
    /// together, and who runs already is told of neither.
    #[serde(default)]
    pub awaits_port: bool,
}

/// A committed checkpoint as a task sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRef {
    /// Training step (`MUSTER_CKPT_STEP`).
    pub step: u64,
    /// Absolute path (`MUSTER_CKPT_LATEST`).
    pub path: String,
}

/// The order to stop a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopInstruction {
    /// Why, for the task's flag file: `cancel|preempt|drain|infra|user|run_time|suspend`.
    pub reason: String,
    /// Milliseconds between asking and killing.
    pub grace_ms: u64,
}

/// Lowest port that rank 0 may be told to listen on (`MASTER_PORT`).
pub const MASTER_PORT_MIN: u16 = 20_000;
/// Number of those ports; all lie below 32,768, where Linux begins to hand out ports by itself.
pub const MASTER_PORTS: u16 = 10_000;

/// What `host` should run, as of `state`.
#[must_use]
pub fn of_host(state: &State, host: HostId) -> DesiredState {
    let mut tasks: Vec<TaskAssignment> = units_on(state, host)
        .flat_map(|(job, unit, attempt)| assignments(state, host, (job, unit, attempt)))
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
    let gpus = host.gpus.iter().map(|gpu| gpu.uuid);
    HealthDuties {
        heard: state.health.acknowledged(id, host.incarnation),
        rules: state.health_rules.revision,
        rules_sum: state.health_rules.sum,
        orders: state.health.orders(id, gpus).collect(),
    }
}

/// The attempts that hold resources on a host, by job and unit.
pub(crate) fn units_on(
    state: &State,
    host: HostId,
) -> impl Iterator<Item = (&Job, UnitIndex, &Attempt)> {
    let first = (host, JobId(0), UnitIndex(0));
    let last = (host, JobId(u64::MAX), UnitIndex(u32::MAX));
    state
        .index
        .on_host
        .range(first..=last)
        .filter_map(|((_, job, unit), _)| {
            let job = state.job(*job)?;
            let attempt = job.unit(*unit)?.attempt.as_deref()?;
            Some((job, *unit, attempt))
        })
}

/// The tasks of one attempt on one host.
fn assignments(
    state: &State,
    host: HostId,
    (job, unit, attempt): (&Job, UnitIndex, &Attempt),
) -> Vec<TaskAssignment> {
    let record = job.unit(unit);
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
                unit,
                epoch: attempt.epoch_of(task.task),
                attempt: attempt.number,
                restart_reason: restart_reason(record, (attempt, task)),
                acknowledged: task.phase,
                command: group.command.clone(),
                environment: group.environment.clone(),
                working_directory: group.working_directory.clone(),
                gpus: task.gpus.clone(),
                cpus_milli: group.resources.cpus_milli,
                memory_mib: group.resources.memory_mib,
                execution: group.execution.clone(),
                rank: ranks.info(rank, local_rank),
                checkpoint: record.and_then(newest_checkpoint),
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
                suspended: job.stands_still() && stop_of(attempt, task).is_none(),
                warning: job.spec.lifecycle.warning,
                care: record.map_or_else(CheckpointCare::default, |unit| {
                    care(state, (unit, attempt), position == 0)
                }),
                user: job.spec.user.clone(),
            })
        })
        .collect()
}

/// Why a task is run: as its unit's attempt, unless it came in place of another member.
fn restart_reason(record: Option<&Unit>, (attempt, task): (&Attempt, &TaskRun)) -> RestartReason {
    let of_unit = record.map_or(RestartReason::First, |unit| unit.restart_reason);
    { attempt.joined(task.task) }.map_or(of_unit, |joined| joined.reason)
}

/// The order to stop that a task has: its attempt's, or its own.
fn stop_of(attempt: &Attempt, task: &TaskRun) -> Option<StopInstruction> {
    let leaving = attempt.leaving().filter(|it| it.task == task.task);
    let own = leaving.map(|leaving| &leaving.order);
    attempt.stop.as_ref().or(own).map(|order| StopInstruction {
        reason: reason_word(&order.reason).to_owned(),
        grace_ms: order.grace_ms,
    })
}

/// Whether a task that waits for its gang may begin. A member that came later finds the gang released: it begins once the
/// state knows that it is prepared, and with that the port that it keeps if it is rank 0.
fn is_released(attempt: &Attempt, task: &TaskRun) -> bool {
    let is_prepared = attempt.joined(task.task).is_none() || task.phase != TaskPhase::Assigned;
    is_prepared && attempt.barrier.is_some_and(|it| it.released_at.is_some())
}

fn care(state: &State, (unit, attempt): (&Unit, &Attempt), is_first: bool) -> CheckpointCare {
    let hosts = attempt.hosts().len();
    let known = CheckpointCare {
        interval_ms: state.reliability.advice_ms(unit, hosts),
        mean_time_ms: Some(state.reliability.mean_time_ms(hosts)),
        ..CheckpointCare::default()
    };
    if !is_first || unit.removals.is_empty() {
        return known;
    }
    let removals = unit.removals.iter().map(|removal| CheckpointRef {
        step: removal.step,
        path: removal.path.clone(),
    });
    let kept = unit.checkpoints.iter();
    CheckpointCare {
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

/// An attempt's hosts in the order in which the ranks first come to them, with how many tasks each has; a member whose
/// place is vacant counts where it was.
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

/// An attempt's hosts in the order in which the ranks first come to them; a member whose place is vacant counts where it
/// was.
fn nodes(attempt: &Attempt) -> Vec<HostId> {
    if attempt.vacancy().is_none() {
        return attempt.hosts();
    }
    let mut seen = BTreeSet::new();
    let hosts = attempt.runs().map(|run| run.host);
    hosts.filter(|host| seen.insert(*host)).collect()
}

/// What an attempt's tasks on one host have in common.
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
        // Nodes count in the order in which the ranks first come to them, so that rank 0 is on node 0.
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

/// Whether the port that is known is one of a rank 0 that is gone. Where nobody keeps a port free, all attempts' members
/// know it beforehand.
fn awaits_port(attempt: &Attempt) -> bool {
    let Some(first) = attempt.runs().next().filter(|_| attempt.barrier.is_some()) else {
        return false;
    };
    let is_vacant = { attempt.vacancy() }.is_some_and(|vacancy| vacancy.run.task == first.task);
    let has_joined = attempt.joined(first.task).is_some();
    is_vacant || has_joined && first.phase == TaskPhase::Assigned
}

/// The port that an attempt's tasks meet on, as long as nobody has chosen one that is free: attempts that follow each
/// other get different ones.
#[must_use]
pub fn master_port(epoch: AttemptEpoch) -> u16 {
    let offset = u16::try_from(epoch.get() % u64::from(MASTER_PORTS)).unwrap_or(0);
    MASTER_PORT_MIN + offset
}

/// The word that a task's flag file gives as reason.
fn reason_word(reason: &StopReason) -> &'static str {
    match reason {
        StopReason::Cancelled => "cancel",
        StopReason::MemberFailed => "user",
        StopReason::MemberLost
        | StopReason::GpuFault { .. }
        | StopReason::HostFault { .. }
        | StopReason::Assembly
        | StopReason::NotSwapped => "infra",
        StopReason::Drain { .. } => "drain",
        StopReason::Preempted | StopReason::Moved => "preempt",
        StopReason::RunTime => "run_time",
        StopReason::Suspended => "suspend",
    }
}

fn as_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
