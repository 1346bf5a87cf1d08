//! Scripts about the leader's timers: hosts send heartbeats or stop while time passes; every command that the
//! reactor proposes is printed with the time since the start of the script, and applied.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;

use muster_control::reactor::{Input, Reaction, Reactor};
use muster_harness as testing;
use muster_model::command::{
    CheckpointCommand, Command as Replicated, ConfigCommand, Exit, GpuHealth, HostCommand,
    JobDefaults, TaskOutcome,
};
use muster_model::heartbeat::{
    CheckpointReport, DamageReport, Heartbeat, TaskStatus, WorkerStatus, WorkerTaskPhase,
};
use muster_model::ids::{AttemptEpoch, HostId, ReplicaId, Revision, TaskIndex, TaskKey, UnitIndex};
use muster_model::time::MonotonicMs;
use muster_model::timings::Timings;
use muster_planner::Budget;

use crate::decisions::cluster::NamedCluster;

/// Monotonic time at the start of the script: not 0, so that no subtraction saturates unnoticed.
const BEGIN_MS: u64 = 1_000_000;

/// Time in which workers find a new leader.
const FIND_LEADER_MS: u64 = 1_000;

#[derive(goldenscript::Command)]
pub(crate) enum Command {
    /// Registers hosts.
    Hosts {
        count: u32,
        #[arg(key)]
        gpus: Option<u32>,
    },
    /// Submits a job and places it.
    Run {
        name: String,
        #[arg(key, optional)]
        gang: bool,
        #[arg(key)]
        tasks: Option<u32>,
        #[arg(key)]
        gpus: Option<u32>,
        #[arg(key)]
        grace_ms: Option<u64>,
        #[arg(key)]
        run_time_ms: Option<u64>,
        #[arg(key)]
        assembly_ms: Option<u64>,
        #[arg(key, optional)]
        barrier: bool,
        #[arg(key, optional)]
        swap: bool,
    },
    /// A new leader begins; it inherits the contact times of its predecessor unless `forget`.
    Lead {
        #[arg(key, optional)]
        forget: bool,
    },
    /// There is no leader for this long, and no heartbeat is received; workers find the next leader after a
    /// second.
    Leaderless { span_ms: u64 },
    /// These hosts send a heartbeat every 5 s from now on.
    Beating { hosts: Vec<String> },
    /// These hosts send heartbeats, but acknowledgements do not reach them.
    OneWay { hosts: Vec<String> },
    /// These hosts send no more heartbeats.
    Silent { hosts: Vec<String> },
    /// A host reports its whole status: `train/0=running train/1=exited:1 0=faulted train/2=saved:40+41`.
    Report {
        host: String,
        #[arg(key)]
        at: Option<u64>,
        #[arg(key)]
        epoch: Option<u64>,
        #[arg(key, many, optional)]
        entries: BTreeMap<String, String>,
    },
    /// Plans and places waiting units.
    Plan,
    /// Sets the cluster's defaults for jobs.
    Defaults,
    /// Loses proposals from now on, or stops losing them.
    LoseProposals { lose: bool },
    /// Acknowledgements request this heartbeat period from now on, as far as leases allow.
    Pace { period_ms: u64 },
    /// Advances the time, ticking whenever the reactor asks for it.
    Wait { span_ms: u64 },
    /// Blocks a host for this long.
    Block { host: String, span_ms: u64 },
    /// Releases the gangs that wait only for that.
    Release,
    /// Prints the health of all hosts and the phase of all tasks.
    State,
}

pub(crate) struct ReactorRunner {
    named: NamedCluster,
    reactor: Reactor,
    now: MonotonicMs,
    wake_at: Option<MonotonicMs>,
    links: BTreeMap<HostId, Link>,
    pace_ms: u64,
    loses_proposals: bool,
}

/// State of a host's heartbeats.
struct Link {
    sequence: u64,
    acknowledged: u64,
    answered: bool,
    next_at: MonotonicMs,
    period_ms: u64,
}

impl Default for ReactorRunner {
    fn default() -> Self {
        let named = NamedCluster::default();
        let now = MonotonicMs(BEGIN_MS);
        let epoch = named.cluster.leader();
        Self {
            reactor: Reactor::new(epoch, Timings::default(), now, BTreeMap::new()),
            named,
            now,
            wake_at: Some(now),
            links: BTreeMap::new(),
            pace_ms: Timings::default().heartbeat_ms,
            loses_proposals: false,
        }
    }
}

impl goldenscript::Runner for ReactorRunner {
    type Command = Command;

    fn run(
        &mut self,
        command: &Command,
        _context: &goldenscript::Context,
    ) -> Result<String, Box<dyn Error>> {
        let mut text = String::new();
        match command {
            Command::Hosts { count, gpus } => {
                self.named.add_hosts(*count, gpus.unwrap_or(8), "H100", 64);
                self.tick(&mut text);
            }
            Command::Run {
                name,
                gang,
                tasks,
                gpus,
                grace_ms,
                run_time_ms,
                assembly_ms,
                barrier,
                swap,
            } => {
                let (tasks, gpus) = (tasks.unwrap_or(1), gpus.unwrap_or(1));
                let mut spec = if *gang {
                    testing::gang(name, tasks, gpus)
                } else {
                    testing::single(name, tasks, gpus)
                };
                spec.scheduling.run_time_ms_max = *run_time_ms;
                spec.scheduling.assembly_ms_max = *assembly_ms;
                spec.lifecycle.member_swap = *swap;
                spec.partition_grace_ms = grace_ms.unwrap_or(spec.partition_grace_ms);
                self.named.submit(name, spec);
                let planned = self.named.plan_with_barrier(Budget::default(), *barrier);
                for placement in planned.placements() {
                    writeln!(text, "{}", self.named.describe(placement))?;
                }
            }
            Command::Lead { forget } => self.lead(*forget),
            Command::Leaderless { span_ms } => {
                self.advance(self.now.after(*span_ms));
                for link in self.links.values_mut() {
                    link.next_at = self.now.after(FIND_LEADER_MS);
                }
            }
            Command::Beating { hosts } => self.link(hosts, true)?,
            Command::OneWay { hosts } => self.link(hosts, false)?,
            Command::Silent { hosts } => {
                for host in hosts {
                    self.links.remove(&self.named.host(host)?);
                }
            }
            Command::Report {
                host,
                at,
                epoch,
                entries,
            } => {
                let status = self.status(entries, epoch.map(AttemptEpoch))?;
                let at = at.map_or(self.named.state().revision, Revision);
                self.heartbeat(self.named.host(host)?, Some(status), at, &mut text);
            }
            Command::Plan => {
                let planned = self.named.plan(Budget::default());
                for placement in planned.placements() {
                    writeln!(text, "{}", self.named.describe(placement))?;
                }
                for step in &planned.steps {
                    if let Replicated::SwapMember(swap) = step {
                        let task = std::slice::from_ref(&swap.task);
                        let place = self.named.describe_tasks(swap.unit_id(), task);
                        writeln!(text, "swap {place}")?;
                    }
                }
            }
            Command::Defaults => {
                let command = Replicated::Config(ConfigCommand::SetJobDefaults {
                    leader: self.named.cluster.leader(),
                    defaults: JobDefaults::default(),
                });
                self.named.apply(&command);
            }
            Command::Pace { period_ms } => self.pace_ms = *period_ms,
            Command::LoseProposals { lose } => self.loses_proposals = *lose,
            Command::Wait { span_ms } => self.wait(*span_ms, &mut text),
            Command::Block { host, span_ms } => {
                let command = Replicated::Block {
                    request: self.named.cluster.next_request(),
                    target: self.named.target(host)?,
                    block: muster_model::command::Block {
                        reason: "maintenance".to_owned(),
                        author: "grace".to_owned(),
                        evidence: String::new(),
                        since: self.named.cluster.now,
                        expires_at: Some(self.named.cluster.now.after(*span_ms)),
                        drain_deadline: None,
                        planned: None,
                    },
                    spares_last: false,
                };
                self.named.apply(&command);
                self.tick(&mut text);
            }
            Command::Release => {
                let commands = self.reactor.releases(&self.named.cluster.state);
                let reaction = Reaction {
                    commands,
                    wake_at: self.wake_at,
                    ..Reaction::default()
                };
                self.react(reaction, &mut text);
            }
            Command::State => self.print_state(&mut text),
        }
        Ok(text)
    }
}

impl ReactorRunner {
    fn lead(&mut self, forget: bool) {
        self.named.apply(&Replicated::LeadershipStarted {
            replica: ReplicaId(2),
        });
        let mut known = BTreeMap::new();
        if !forget {
            let contacts = self.reactor.contacts();
            known.extend(contacts.map(|(host, contact)| (host, *contact)));
        }
        let epoch = self.named.cluster.leader();
        self.reactor = Reactor::new(epoch, Timings::default(), self.now, known);
        self.wake_at = Some(self.now);
    }

    fn link(&mut self, hosts: &[String], answered: bool) -> Result<(), Box<dyn Error>> {
        for host in hosts {
            let host = self.named.host(host)?;
            let now = self.now;
            let link = self.links.entry(host).or_insert(Link {
                sequence: 0,
                acknowledged: 0,
                answered,
                next_at: now,
                period_ms: Timings::default().heartbeat_ms,
            });
            link.answered = answered;
        }
        Ok(())
    }

    fn wait(&mut self, span_ms: u64, text: &mut String) {
        let end = self.now.after(span_ms);
        loop {
            let heartbeat = self
                .links
                .iter()
                .map(|(host, link)| (link.next_at, Some(*host)));
            let tick = self.wake_at.map(|at| (at.max(self.now), None));
            let Some((at, host)) = heartbeat.chain(tick).min().filter(|(at, _)| *at <= end) else {
                break;
            };
            self.advance(at);
            match host {
                Some(host) => {
                    let revision = self.named.state().revision;
                    self.heartbeat(host, None, revision, text);
                }
                None => self.tick(text),
            }
        }
        self.advance(end);
    }

    fn advance(&mut self, to: MonotonicMs) {
        self.named.cluster.wait(to.since(self.now));
        self.now = to;
    }

    fn heartbeat(
        &mut self,
        host: HostId,
        status: Option<WorkerStatus>,
        desired_revision: Revision,
        text: &mut String,
    ) {
        let now = self.now;
        let link = self.links.entry(host).or_insert(Link {
            sequence: 0,
            acknowledged: 0,
            answered: true,
            next_at: now,
            period_ms: Timings::default().heartbeat_ms,
        });
        link.sequence += 1;
        if link.answered {
            link.acknowledged = link.sequence - 1;
        }
        let sequence = link.sequence;
        let heartbeat = Heartbeat {
            sequence,
            acknowledged: link.acknowledged,
            leader: self.reactor.epoch(),
            desired_revision,
            status,
        };
        let reaction = self.reactor.step(
            &self.named.cluster.state,
            Input::Heartbeat { host, heartbeat },
            now,
        );
        self.react(reaction, text);
        self.acknowledge(host, sequence, text);
    }

    /// The leader acknowledges the heartbeat at once; a worker that receives it uses the requested period.
    fn acknowledge(&mut self, host: HostId, sequence: u64, text: &mut String) {
        let state = &self.named.cluster.state;
        let period_ms = self.reactor.period_ms(state, host, self.pace_ms);
        self.reactor.record_period(host, sequence, period_ms);
        let Some(link) = self.links.get_mut(&host) else {
            return;
        };
        if link.answered && link.period_ms != period_ms {
            link.period_ms = period_ms;
            let at = self.now.since(MonotonicMs(BEGIN_MS));
            let host = self.named.host_name(host);
            let _infallible = writeln!(text, "{at} {host} heartbeats every {period_ms} ms");
        }
        link.next_at = self.now.after(link.period_ms);
    }

    fn tick(&mut self, text: &mut String) {
        let time = self.named.cluster.now;
        let reaction = self
            .reactor
            .step(&self.named.cluster.state, Input::Tick { time }, self.now);
        self.react(reaction, text);
    }

    fn react(&mut self, reaction: Reaction, text: &mut String) {
        let at = self.now.since(MonotonicMs(BEGIN_MS));
        for host in &reaction.outdated {
            let _infallible = writeln!(text, "{at} outdated: {}", self.named.host_name(*host));
        }
        for command in &reaction.commands {
            let lost = if self.loses_proposals { " (lost)" } else { "" };
            let _infallible = writeln!(text, "{at} {}{lost}", self.describe(command));
            if !self.loses_proposals {
                self.named.apply(command);
            }
        }
        self.wake_at = reaction.wake_at;
    }

    fn describe(&self, command: &Replicated) -> String {
        match command {
            Replicated::Host(HostCommand::SetHostHealth {
                host,
                health,
                one_way,
                ..
            }) => {
                let link = if *one_way {
                    ", its heartbeats arrive"
                } else {
                    ""
                };
                format!("{} is {health:?}{link}", self.named.host_name(*host))
            }
            Replicated::ReportTask(report) => {
                let task = format!("{}/{}", self.named.job_name(report.job), report.task);
                match &report.outcome {
                    TaskOutcome::Exited(exit) if exit.start_error.is_some() => {
                        format!("{task} could not be started")
                    }
                    TaskOutcome::Exited(exit) => format!("{task} exited with {:?}", exit.code),
                    other => format!("{task} {other:?}"),
                }
            }
            Replicated::Host(HostCommand::SetGpuHealth { gpu, health, .. }) => {
                let found = self.named.state().gpu(*gpu);
                let name = found.map(|(host, gpu)| format!("{}/{}", host.name, gpu.index));
                format!("GPU {} {health:?}", name.unwrap_or_default())
            }
            Replicated::Checkpoint(CheckpointCommand::CommitCheckpoint {
                job, checkpoint, ..
            }) => {
                format!(
                    "{} saved step {}",
                    self.named.job_name(*job),
                    checkpoint.step
                )
            }
            Replicated::ReleaseGang { job, .. } => {
                format!("{} is released", self.named.job_name(*job))
            }
            Replicated::Checkpoint(CheckpointCommand::MarkCheckpointDamaged {
                job,
                epoch,
                step,
                ..
            }) => {
                let job = self.named.job_name(*job);
                format!("{job} cannot read step {step} of epoch {epoch}")
            }
            Replicated::ExpireBlocks { .. } => "blocks expire".to_owned(),
            other => format!("{other:?}"),
        }
    }

    fn status(
        &self,
        entries: &BTreeMap<String, String>,
        epoch: Option<AttemptEpoch>,
    ) -> Result<WorkerStatus, Box<dyn Error>> {
        let mut status = WorkerStatus::default();
        for (what, reported) in entries {
            match what.split_once('/') {
                Some((host, index)) if host.starts_with("node-") => {
                    let host = self
                        .named
                        .state()
                        .host_by_name(host)
                        .ok_or("no such host")?;
                    let gpu = host
                        .gpus
                        .get(index.parse::<usize>()?)
                        .ok_or("no such GPU")?;
                    status.gpus.push((gpu.uuid, gpu_health(reported)));
                }
                Some((job, task)) => {
                    status
                        .tasks
                        .push(self.task(job, task.parse()?, reported, epoch)?)
                }
                None => return Err(format!("neither task nor GPU: {what}").into()),
            }
        }
        Ok(status)
    }

    fn task(
        &self,
        job: &str,
        task: u32,
        reported: &str,
        epoch: Option<AttemptEpoch>,
    ) -> Result<TaskStatus, Box<dyn Error>> {
        let id = self.named.job(job)?;
        let job = self.named.state().job(id).ok_or("no such job")?;
        let unit = UnitIndex(if job.spec.gang { 0 } else { task });
        let attempt = job.unit(unit).and_then(|unit| unit.attempt.as_deref());
        let of_task = attempt.map(|attempt| attempt.epoch_of(TaskIndex(task)));
        let current = of_task.unwrap_or_default();
        let damaged = reported.strip_prefix("damaged:").map(damages).transpose()?;
        let damaged = damaged.unwrap_or_default();
        let (phase, checkpoints) = match reported.split_once(':') {
            Some(("damaged", _)) => (WorkerTaskPhase::Running, Vec::new()),
            Some(("exited", code)) => (
                WorkerTaskPhase::Exited(testing::exit_with(code.parse()?)),
                Vec::new(),
            ),
            Some(("output", text)) => {
                let exit = Exit {
                    evidence: text.to_owned(),
                    ..testing::exit_with(1)
                };
                (WorkerTaskPhase::Exited(exit), Vec::new())
            }
            Some(("prepared", port)) => (
                WorkerTaskPhase::Prepared {
                    master_port: Some(port.parse()?),
                },
                Vec::new(),
            ),
            _ if reported == "prepared" => {
                (WorkerTaskPhase::Prepared { master_port: None }, Vec::new())
            }
            Some(("saved", steps)) => (WorkerTaskPhase::Running, checkpoints(steps)?),
            Some(("saved-and-exited", steps)) => (
                WorkerTaskPhase::Exited(testing::exit_with(0)),
                checkpoints(steps)?,
            ),
            Some(("unstartable", error)) => {
                (WorkerTaskPhase::Exited(unstartable(error)), Vec::new())
            }
            _ if reported == "running" => (WorkerTaskPhase::Running, Vec::new()),
            _ if reported == "starting" => (WorkerTaskPhase::Starting, Vec::new()),
            _ if reported == "gone" => (
                WorkerTaskPhase::Gone {
                    detail: "its supervisor vanished".to_owned(),
                },
                Vec::new(),
            ),
            _ => return Err(format!("no phase {reported}").into()),
        };
        Ok(TaskStatus {
            key: TaskKey {
                job: id,
                task: TaskIndex(task),
            },
            unit,
            epoch: epoch.unwrap_or(current),
            phase,
            checkpoints,
            progress_step: None,
            damaged,
        })
    }

    fn print_state(&self, text: &mut String) {
        let state = self.named.state();
        for host in state.hosts.values() {
            let link = if host.one_way { " (one way)" } else { "" };
            let _infallible = writeln!(text, "{} {:?}{link}", host.name, host.health);
        }
        for job in state.jobs.values() {
            let name = self.named.job_name(job.id);
            let _infallible = write!(text, "{name} {:?}:", job.phase);
            for unit in job.units.values() {
                let phases: BTreeSet<String> = unit
                    .attempt
                    .iter()
                    .flat_map(|attempt| &attempt.tasks)
                    .map(|task| format!("{}={:?}", task.task, task.phase))
                    .collect();
                let phases: Vec<String> = phases.into_iter().collect();
                let _infallible = write!(text, " {:?}[{}]", unit.phase, phases.join(" "));
            }
            text.push('\n');
        }
    }
}

fn gpu_health(reported: &str) -> GpuHealth {
    if reported == "healthy" {
        return GpuHealth::Healthy;
    }
    GpuHealth::Faulted {
        signal: reported.to_owned(),
        detail: "as reported by its driver".to_owned(),
    }
}

/// `40` or `40+41+42`.
fn checkpoints(steps: &str) -> Result<Vec<CheckpointReport>, Box<dyn Error>> {
    let steps = steps.split('+');
    steps.map(|step| Ok(checkpoint(step.parse()?))).collect()
}

fn unstartable(error: &str) -> Exit {
    Exit {
        code: None,
        start_error: Some(error.to_owned()),
        ..testing::exit_with(0)
    }
}

/// `10,20`: steps of checkpoints that the task could not read.
fn damages(steps: &str) -> Result<Vec<DamageReport>, Box<dyn Error>> {
    let damage = |step: &str| -> Result<DamageReport, Box<dyn Error>> {
        Ok(DamageReport {
            step: step.parse()?,
            reason: "its digest differs".to_owned(),
        })
    };
    steps.split(',').map(damage).collect()
}

fn checkpoint(step: u64) -> CheckpointReport {
    CheckpointReport {
        step,
        path: format!("/checkpoints/step_{step}"),
        size_bytes: 0,
        digest: String::new(),
        save_ms: None,
    }
}
