//! Scripts about the worker's decisions: desired states, acknowledgements and supervisors' reports in,
//! actions out. Times are relative to the start of the script; journalled records survive a `restart`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;

use muster_control::agent::{
    Action, Agent, DiscoveredAttempt, Input, JournalRecord, SupervisorReport,
};
use muster_harness as testing;
use muster_model::command::GpuHealth;
use muster_model::desired::{
    CheckpointDuties, CheckpointRef, DesiredState, GangHost, HealthDuties, RankInfo, RestartReason,
    StopInstruction, TaskAssignment,
};
use muster_model::heartbeat::WorkerTaskPhase;
use muster_model::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, LeadershipEpoch, Revision, TaskIndex, TaskKey, UnitIndex,
};
use muster_model::lifecycle::TaskPhase;
use muster_model::spec::Execution;
use muster_model::time::MonotonicMs;

/// Monotonic time at the start of the script.
const BEGIN_MS: u64 = 1_000_000;

#[derive(goldenscript::Command)]
pub(crate) enum Command {
    /// A leader sends the desired state: `desired 20 leader=10 7/0=12 7/1=12,stop:5000 7/2=12,ended,gpu:3`.
    Desired {
        revision: u64,
        #[arg(key)]
        leader: Option<u64>,
        #[arg(key, many, optional)]
        tasks: BTreeMap<String, String>,
    },
    /// A new stream is open.
    Stream,
    /// A heartbeat is sent.
    Heartbeat,
    /// The leader acknowledges a heartbeat.
    Ack {
        sequence: u64,
        #[arg(key)]
        leader: Option<u64>,
    },
    /// A supervisor reports that its task is prepared, optionally with the rendezvous port it reserved.
    Prepared {
        task: String,
        epoch: u64,
        #[arg(key)]
        port: Option<u16>,
    },
    /// A supervisor reports that its task runs.
    Started { task: String, epoch: u64 },
    /// A supervisor reports that its task ended.
    Exited { task: String, epoch: u64, code: i32 },
    /// A supervisor is gone.
    Vanished { task: String, epoch: u64 },
    /// A supervisor cannot kill its task, whose main process may have ended.
    Stuck {
        task: String,
        epoch: u64,
        code: Option<i32>,
    },
    /// The GPU backend reports a GPU as unfit by a signal, or fit again: `gpu 1 task-stuck`, `gpu 1`.
    Gpu { index: u128, signal: Option<String> },
    /// Advances the time.
    Wait { span_ms: u64 },
    /// The agent is killed and starts again; these supervisors are found: `7/0=12:running`,
    /// `7/0="12,gpu:3:stopping"`, `7/0=12:0` (it has ended with that code), `7/0="12,unknown:running"` (its
    /// assignment is unknown). Anything after an `@` only makes keys distinct.
    Restart {
        #[arg(key, many, optional)]
        found: BTreeMap<String, String>,
    },
    /// The agent loses its journal, which takes effect at the next restart.
    Lose,
    /// Prints the status that a heartbeat would carry, and the next deadline.
    Status,
}

pub(crate) struct AgentRunner {
    agent: Agent,
    now: MonotonicMs,
    sequence: u64,
    journal: Vec<JournalRecord>,
    deadlines: BTreeMap<TaskKey, MonotonicMs>,
}

impl Default for AgentRunner {
    fn default() -> Self {
        Self {
            agent: Agent::default(),
            now: MonotonicMs(BEGIN_MS),
            sequence: 0,
            journal: Vec::new(),
            deadlines: BTreeMap::new(),
        }
    }
}

impl goldenscript::Runner for AgentRunner {
    type Command = Command;

    fn run(
        &mut self,
        command: &Command,
        _context: &goldenscript::Context,
    ) -> Result<String, Box<dyn Error>> {
        let input = match command {
            Command::Desired {
                revision,
                leader,
                tasks,
            } => Input::Desired(DesiredState {
                health: HealthDuties::default(),
                leader: LeadershipEpoch(leader.unwrap_or(10)),
                revision: Revision(*revision),
                host: HostId(1),
                tasks: tasks
                    .iter()
                    .map(|(key, text)| assignment(key, text))
                    .collect::<Result<_, _>>()?,
            }),
            Command::Stream => {
                self.sequence = 0;
                Input::StreamOpened
            }
            Command::Heartbeat => {
                self.sequence += 1;
                Input::HeartbeatSent {
                    sequence: self.sequence,
                }
            }
            Command::Ack { sequence, leader } => Input::HeartbeatAcknowledged {
                leader: LeadershipEpoch(leader.unwrap_or(10)),
                sequence: *sequence,
            },
            Command::Prepared { task, epoch, port } => {
                let master_port = *port;
                report(task, *epoch, SupervisorReport::Prepared { master_port })?
            }
            Command::Started { task, epoch } => report(task, *epoch, SupervisorReport::Started)?,
            Command::Exited { task, epoch, code } => {
                let exit = testing::exit_with(*code);
                report(task, *epoch, SupervisorReport::Exited(exit))?
            }
            Command::Stuck { task, epoch, code } => {
                let exit = code.map(testing::exit_with);
                let detail = "it hangs".to_owned();
                report(task, *epoch, SupervisorReport::Stuck { detail, exit })?
            }
            Command::Gpu { index, signal } => Input::GpuHealth {
                gpu: GpuUuid(*index),
                health: signal
                    .clone()
                    .map_or(GpuHealth::Healthy, |signal| GpuHealth::Faulted {
                        signal,
                        detail: String::new(),
                    }),
            },
            Command::Vanished { task, epoch } => {
                let detail = "no supervisor".to_owned();
                report(task, *epoch, SupervisorReport::Vanished { detail })?
            }
            Command::Wait { span_ms } => {
                self.now = self.now.after(*span_ms);
                Input::Tick
            }
            Command::Restart { found } => return self.restart(found),
            Command::Lose => {
                self.journal.clear();
                self.agent = Agent::default();
                return Ok(String::new());
            }
            Command::Status => return Ok(self.status()),
        };
        let actions = self.agent.step(input, self.now);
        Ok(self.carry_out(actions))
    }
}

impl AgentRunner {
    /// The journal must read the same as written and as shortened by the agent.
    fn restart(&mut self, found: &BTreeMap<String, String>) -> Result<String, Box<dyn Error>> {
        let mut alive = Vec::new();
        for (key, text) in found {
            let (text, phase) = text.rsplit_once(':').ok_or("expected assignment:phase")?;
            let known = text.strip_suffix(",unknown");
            let key = key.split_once('@').map_or(key.as_str(), |(key, _)| key);
            let assignment = assignment(key, known.unwrap_or(text))?;
            let key = assignment.key;
            alive.push(DiscoveredAttempt {
                key,
                epoch: assignment.epoch,
                is_suspended: phase == "still",
                phase: match phase {
                    "running" | "still" => WorkerTaskPhase::Running,
                    "prepared" => WorkerTaskPhase::Prepared { master_port: None },
                    "stopping" => WorkerTaskPhase::Stopping,
                    code => WorkerTaskPhase::Exited(testing::exit_with(code.parse()?)),
                },
                assignment: known.is_none().then(|| Box::new(assignment)),
                deadline: self.deadlines.get(&key).copied().unwrap_or(self.now),
            });
        }
        let shortened = self.agent.journal();
        let (agent, actions) = Agent::recover(self.journal.clone(), alive.clone());
        let (same, _) = Agent::recover(shortened, alive);
        assert_eq!(agent, same, "the shortened journal reads differently");
        self.agent = agent;
        self.sequence = 0;
        Ok(self.carry_out(actions))
    }

    fn carry_out(&mut self, actions: Vec<Action>) -> String {
        let mut text = String::new();
        for action in actions {
            match &action {
                Action::Journal(record) => self.journal.push(record.clone()),
                Action::Start {
                    assignment,
                    deadline,
                } => {
                    self.deadlines.insert(assignment.key, *deadline);
                }
                Action::ExtendLease { key, deadline, .. } => {
                    self.deadlines.insert(*key, *deadline);
                }
                _ => {}
            }
            let _infallible = writeln!(text, "{}", describe(&action));
        }
        text
    }

    fn status(&self) -> String {
        let mut text = String::new();
        for task in self.agent.status().tasks {
            let _infallible = writeln!(
                text,
                "{} epoch {} {}",
                name(task.key),
                task.epoch,
                phase(&task.phase)
            );
        }
        let deadline = self.agent.next_deadline();
        let deadline = deadline.map_or("none".to_owned(), |at| since_begin(at).to_string());
        let _infallible = writeln!(
            text,
            "leader {}, revision {}, next deadline {deadline}",
            self.agent.leader(),
            self.agent.desired_revision(),
        );
        text
    }
}

fn report(task: &str, epoch: u64, report: SupervisorReport) -> Result<Input, Box<dyn Error>> {
    Ok(Input::Supervisor {
        key: task_key(task)?,
        epoch: AttemptEpoch(epoch),
        report,
    })
}

fn task_key(text: &str) -> Result<TaskKey, Box<dyn Error>> {
    let (job, task) = text.split_once('/').ok_or("expected job/task")?;
    Ok(TaskKey {
        job: JobId(job.parse()?),
        task: TaskIndex(task.parse()?),
    })
}

/// `12`, `12,stop:5000`, `12,ended`, `12,gpu:3`, `12,grace:300000`, `12,gang`, `12,gang,released,port:29500`,
/// `12,master:a,host:a,host:b`, `12,master:a,awaits-port`.
fn assignment(key: &str, text: &str) -> Result<TaskAssignment, Box<dyn Error>> {
    let key = task_key(key)?;
    let mut parts = text.split(',');
    let epoch = parts.next().ok_or("expected an epoch")?.parse()?;
    let mut assignment = TaskAssignment {
        key,
        unit: UnitIndex(key.task.get()),
        epoch: AttemptEpoch(epoch),
        attempt: 1,
        restart_reason: RestartReason::First,
        acknowledged: TaskPhase::Assigned,
        command: vec!["true".to_owned()],
        environment: BTreeMap::new(),
        working_directory: None,
        gpus: Vec::new(),
        cpus_milli: 1_000,
        memory_mib: 1_024,
        execution: Execution::default(),
        rank: RankInfo::default(),
        checkpoint: None,
        stop_grace_ms: 30_000,
        partition_grace_ms: 45_000,
        stop: None,
        barrier: false,
        released: false,
        gang_hosts: Vec::new(),
        suspended: false,
        warning: None,
        checkpoint_duties: CheckpointDuties::default(),
        user: "ada".to_owned(),
    };
    for part in parts {
        match part.split_once(':') {
            None if part == "suspended" => assignment.suspended = true,
            None if part == "gang" => assignment.barrier = true,
            None if part == "released" => assignment.released = true,
            Some(("port", port)) => assignment.rank.master_port = port.parse()?,
            None if part == "awaits-port" => assignment.rank.awaits_port = true,
            None if part == "ended" => assignment.acknowledged = TaskPhase::Exited,
            Some(("stop", grace_ms)) => {
                assignment.stop = Some(StopInstruction {
                    reason: "cancel".to_owned(),
                    grace_ms: grace_ms.parse()?,
                });
            }
            Some(("remove", path)) => assignment.checkpoint_duties.removals.push(CheckpointRef {
                step: 1,
                path: path.to_owned(),
            }),
            Some(("master", address)) => address.clone_into(&mut assignment.rank.master_address),
            Some(("host", address)) => assignment.gang_hosts.push(GangHost {
                address: address.to_owned(),
                slots: 1,
            }),
            Some(("gpu", index)) => assignment.gpus.push(GpuUuid(index.parse()?)),
            Some(("grace", span_ms)) => assignment.partition_grace_ms = span_ms.parse()?,
            _ => return Err(format!("unknown: {part}").into()),
        }
    }
    Ok(assignment)
}

fn name(key: TaskKey) -> String {
    format!("{}/{}", key.job, key.task)
}

fn since_begin(at: MonotonicMs) -> u64 {
    at.since(MonotonicMs(BEGIN_MS))
}

fn phase(phase: &WorkerTaskPhase) -> String {
    match phase {
        WorkerTaskPhase::Exited(exit) => format!("exited with {:?}", exit.code),
        other => format!("{other:?}"),
    }
}

fn describe(action: &Action) -> String {
    match action {
        Action::HealthWork(order) => format!("{} of {}", order.action, order.component),
        Action::Journal(JournalRecord::Leader(leader)) => format!("journal: leader {leader}"),
        Action::Journal(JournalRecord::Starting(task)) => {
            format!("journal: starting {} epoch {}", name(task.key), task.epoch)
        }
        Action::Journal(JournalRecord::Ended {
            key,
            epoch,
            phase: ended,
        }) => {
            format!(
                "journal: {} epoch {epoch} ended, {}",
                name(*key),
                phase(ended)
            )
        }
        Action::Journal(JournalRecord::Released { key, epoch }) => {
            format!("journal: {} epoch {epoch} released", name(*key))
        }
        Action::Journal(JournalRecord::Forgotten { up_to }) => {
            format!("journal: forgotten up to {up_to}")
        }
        Action::Start {
            assignment,
            deadline,
        } => format!(
            "start {} epoch {} until {}",
            name(assignment.key),
            assignment.epoch,
            since_begin(*deadline)
        ),
        Action::Stop {
            key,
            epoch,
            reason,
            grace_ms,
        } => {
            format!(
                "stop {} epoch {epoch} ({reason}, {grace_ms} ms)",
                name(*key)
            )
        }
        Action::ExtendLease {
            key,
            epoch,
            deadline,
        } => {
            format!(
                "extend {} epoch {epoch} until {}",
                name(*key),
                since_begin(*deadline)
            )
        }
        Action::Begin {
            key,
            epoch,
            master_port,
        } => format!("begin {} epoch {epoch} on port {master_port}", name(*key)),
        Action::Renew {
            key,
            epoch,
            rendezvous,
        } => {
            let hosts = rendezvous.hosts.iter();
            let hosts: Vec<String> = hosts
                .map(|host| format!("{}:{}", host.address, host.slots))
                .collect();
            format!(
                "renew {} epoch {epoch}: {}:{} [{}]",
                name(*key),
                rendezvous.master_address,
                rendezvous.master_port,
                hosts.join(" ")
            )
        }
        Action::Suspend {
            key,
            epoch,
            suspended: true,
        } => format!("pause {} epoch {epoch}", name(*key)),
        Action::Suspend { key, epoch, .. } => format!("resume {} epoch {epoch}", name(*key)),
        Action::RemoveCheckpoint { key, path, .. } => format!("remove {path} of {}", name(*key)),
        Action::Release { key, epoch } => format!("release {} epoch {epoch}", name(*key)),
        Action::SendStatus => "send status".to_owned(),
    }
}
