//! Script language of the `apply` tests.
//!
//! Jobs are given by name, hosts by number, GPUs by `host/index`. The tag `[stale]` sends a command with the
//! previous leadership; `epoch=` names an attempt other than the current one; `request=` repeats a request
//! id. Every command is followed by an audit.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;

use goldenscript::{ArgumentConsumer, Context};
use muster_engine::desired;
use muster_engine::state::Answer;
use muster_harness::{
    Cluster, exit_with, fingerprinted, gang, gpu_uuid, host_of_model, request_id, request_key,
    single, start_error,
};
use muster_model::command::{
    Block, BlockTarget, CheckpointCommand, CheckpointCommit, Command, ConfigCommand, Exit,
    GpuHealth, HostCommand, HostHealth, HostRegistration, LastMeasurements, MemberSwap, Placement,
    Planned, SignalSender, StopReason, TaskOutcome, TaskPlacement, TaskReport,
};
use muster_model::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, LeadershipEpoch, ReplicaId, RequestKey, TaskIndex,
    UnitIndex,
};
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;

use crate::apply_scripts::scheduling::{allocation_basis, scheduling_keys};
use crate::apply_scripts::show::Show;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A cluster driven by a script.
pub(crate) struct Runner {
    pub(crate) cluster: Cluster,
    pub(crate) jobs: BTreeMap<String, JobId>,
    show: Show,
}

impl Default for Runner {
    fn default() -> Self {
        let cluster = Cluster::new();
        Self {
            show: Show { begin: cluster.now },
            jobs: BTreeMap::new(),
            cluster,
        }
    }
}

impl goldenscript::Runner for Runner {
    type Command = goldenscript::Command;

    fn run(&mut self, command: &Self::Command, context: &Context) -> Result<String> {
        let stale = context.tags.contains("stale");
        let mut args = Args(command.consume_args());
        let output = match command.name.as_str() {
            "state" => Ok(self.show.state(&self.cluster.state)),
            "queues" => Ok(self.queues()),
            "pipelines" => Ok(self.pipelines()),
            "health" => Ok(self.health()),
            "users" => Ok(self.users()),
            "join_tokens" => Ok(self.join_tokens()),
            "ledger" => self.ledger(&mut args),
            "meets" => self.meets(&mut args),
            "wait" => {
                self.cluster.wait(args.positional()?);
                Ok(String::new())
            }
            "place_all" => self.place_all(&mut args),
            "start_all" => self.start_all(&mut args),
            name => {
                let core = self.command(name, &mut args, stale)?;
                Ok(self.apply(&core))
            }
        }?;
        args.0.reject_next()?;
        Ok(output)
    }
}

impl Runner {
    fn command(&mut self, name: &str, args: &mut Args<'_>, stale: bool) -> Result<Command> {
        let leader = self.leader(stale);
        match name {
            "leader" => Ok(Command::LeadershipStarted {
                replica: ReplicaId(args.positional()?),
            }),
            "host" => Ok(Command::Host(HostCommand::RegisterHost {
                leader,
                registration: Arc::new(registration(args)?),
            })),
            "submit" => self.submit(args),
            "pipeline" => self.pipeline(args),
            "cancel" => Ok(Command::CancelJob {
                request: self.request(args)?,
                job: self.job(args)?,
                author: args.key_or("by", "ada".to_owned())?,
                reason: args.key_or("reason", String::new())?,
            }),
            "suspend" => Ok(Command::SuspendJob {
                request: self.request(args)?,
                job: self.job(args)?,
                author: args.key_or("by", "ada".to_owned())?,
                reason: args.key_or("reason", String::new())?,
            }),
            "resume" => Ok(Command::ResumeJob {
                request: self.request(args)?,
                job: self.job(args)?,
                author: args.key_or("by", "ada".to_owned())?,
                reason: args.key_or("reason", String::new())?,
            }),
            "place" => self.place(args, leader),
            "swap" => self.swap(args, leader),
            "release" => self.release(args, leader),
            "start" | "prepared" | "exit" | "gone" | "fenced" => self.report(name, args, leader),
            "stop" => self.stop(args, leader),
            "block" => self.block(args),
            "unblock" => Ok(Command::Unblock {
                request: self.request(args)?,
                target: target(args)?,
                author: "grace".to_owned(),
                planned: args.key_or("planned", false)?,
            }),
            "expire" => Ok(Command::ExpireBlocks { leader }),
            "host_health" => host_health(args, leader),
            "gpu_health" => gpu_health(args, leader),
            "checkpoint" => self.checkpoint(args, leader),
            "damage" => self.damage(args, leader),
            "defaults" => Self::defaults(args, leader),
            "replicas" => Self::replicas(args, leader),
            "queue" => Ok(Command::Config(ConfigCommand::SetQueue {
                request: self.request(args)?,
                name: args.positional()?,
                live_jobs_max: args.positional()?,
            })),
            "configure" => self.configure(args),
            "topology" => self.topology(args),
            "claim" => self.claim(args, leader),
            "drop_claim" => self.drop_claim(args, leader),
            "stand" => self.stand(args, leader),
            "found" => self.found(args, leader),
            "work" => self.work(args, leader),
            "health_rules" | "ship_rules" | "reset_breaker" | "drain_lemon" | "restarted"
            | "health_tick" => self.health_command(name, args, leader),
            "add_user" | "remove_user" | "rotate_token" => self.access(name, args),
            "add_join_token" | "revoke_join_token" | "use_join_token" => {
                self.join_token(name, args)
            }
            "prune" => Ok(Command::Prune { leader }),
            other => Err(format!("no command `{other}`").into()),
        }
    }

    /// Applies a command and shows its answer and events.
    fn apply(&mut self, command: &Command) -> String {
        let applied = self.cluster.apply(&fingerprinted(command.clone()));
        let mut text = String::new();
        if let Command::SubmitJob { spec, .. } = command
            && let Ok(Answer::Job(job)) = applied.result
        {
            self.jobs.insert(spec.name.clone(), job);
        }
        if let Ok(Answer::Pipeline(pipeline)) = applied.result {
            self.remember(pipeline);
        }
        let answer = match applied.result {
            Ok(answer) => format!("{answer:?}"),
            Err(rejection) => format!("refused: {}", cut(&rejection.to_string())),
        };
        let _ = writeln!(text, "r{} {answer}", applied.revision);
        for (revision, events) in self.cluster.state.events.iter() {
            for event in events.iter().filter(|_| revision == applied.revision) {
                let _ = writeln!(text, "  {}", self.show.event(&event.kind));
            }
        }
        text
    }

    fn leader(&self, stale: bool) -> LeadershipEpoch {
        LeadershipEpoch(self.cluster.leader().get() - u64::from(stale))
    }

    pub(crate) fn request(&mut self, args: &mut Args<'_>) -> Result<RequestKey> {
        Ok(match args.key("request")? {
            Some(number) => request_key(number),
            None => self.cluster.next_request(),
        })
    }

    pub(crate) fn job(&self, args: &mut Args<'_>) -> Result<JobId> {
        let name: String = args.positional()?;
        self.known(&name)
    }

    /// Returns a job by its name or number.
    pub(crate) fn known(&self, name: &str) -> Result<JobId> {
        match self.jobs.get(name) {
            Some(job) => Ok(*job),
            None => Ok(JobId(name.parse()?)),
        }
    }

    fn queues(&self) -> String {
        let queues = self.cluster.state.queues.values();
        queues.fold(String::new(), |mut text, queue| {
            let _ = writeln!(
                text,
                "queue {} {} of {}{}",
                queue.name,
                queue.live_jobs,
                queue.config.live_jobs_max,
                if queue.retired { ", retired" } else { "" }
            );
            if let Some(usage) = self.cluster.state.index.usage.get(&queue.name) {
                let _ = writeln!(
                    text,
                    "  holds {} GPUs, {} opportunistically, {} stopping; claims {}",
                    usage.total.held.gpus,
                    usage.total.opportunistic.gpus,
                    usage.total.stopping.gpus,
                    usage.total.claimed.gpus
                );
            }
            text
        })
    }

    fn submit(&mut self, args: &mut Args<'_>) -> Result<Command> {
        let name: String = args.positional()?;
        let (tasks, gpus) = (args.key_or("tasks", 1)?, args.key_or("gpus", 0)?);
        let mut spec: JobSpec = if args.key_or("gang", false)? {
            gang(&name, tasks, gpus)
        } else {
            single(&name, tasks, gpus)
        };
        spec.priority = args.key_or("priority", spec.priority)?;
        spec.queue = args.key_or("queue", spec.queue)?;
        spec.retry.retries_max = args.key_or("retries", 1)?;
        spec.retry.backoff_ms = args.key_or("backoff", spec.retry.backoff_ms)?;
        scheduling_keys(args, &mut spec)?;
        self.live(args, &mut spec)?;
        let group = &mut spec.groups[0];
        group.tasks_per_host_max = args.key("per_host")?;
        group.resources.gpu_models = args.key("model")?.into_iter().collect();
        group.resources.cpus_milli = args.key_or("cpus", group.resources.cpus_milli)?;
        if let Some(bytes) = args.key("environment_bytes")? {
            group
                .environment
                .insert("PADDING".to_owned(), "x".repeat(bytes));
        }
        if let Some(count) = args.key("groups")? {
            spec.groups = (0..count)
                .map(|number: u32| {
                    let mut group = spec.groups[0].clone();
                    group.name = format!("group-{number}");
                    group
                })
                .collect();
        }
        Ok(Command::SubmitJob {
            request: self.request(args)?,
            spec: Arc::new(spec),
        })
    }

    /// `place JOB [unit] [at=TASK@HOST:GPU+GPU,...]`; first fit by default.
    fn place(&mut self, args: &mut Args<'_>, leader: LeadershipEpoch) -> Result<Command> {
        let job = self.job(args)?;
        let unit = UnitIndex(args.optional()?.unwrap_or(0));
        let tasks = match args.key::<String>("at")? {
            Some(list) => list.split(',').map(task_placement).collect::<Result<_>>()?,
            None => match self.cluster.first_fit(job, unit) {
                Some(Command::Place(placement)) => placement.tasks,
                _ => return Err(format!("no room for unit {unit} of job {job}").into()),
            },
        };
        Ok(Command::Place(Placement {
            leader,
            job,
            unit,
            tasks,
            basis: allocation_basis(args)?,
            barrier: args.key_or("barrier", false)?,
        }))
    }

    /// `swap JOB at=TASK@HOST:GPU+GPU [epoch=]`: a new member for a vacant place.
    fn swap(&mut self, args: &mut Args<'_>, leader: LeadershipEpoch) -> Result<Command> {
        let job = self.job(args)?;
        let at: String = args.key("at")?.ok_or("a member is somewhere: at=")?;
        let unit = UnitIndex(0);
        let current = self.cluster.attempt(job, unit);
        let epoch = current.map_or(0, |attempt| attempt.epoch.get());
        Ok(Command::SwapMember(MemberSwap {
            leader,
            job,
            unit,
            epoch: AttemptEpoch(args.key_or("epoch", epoch)?),
            task: task_placement(&at)?,
        }))
    }

    /// `meets HOST`: the rendezvous sent to a host's worker for its tasks' gangs, with its revision.
    fn meets(&self, args: &mut Args<'_>) -> Result<String> {
        let host = HostId(args.positional()?);
        let known = self.cluster.state.host(host).ok_or("no such host")?;
        let mut text = format!("host {host} as of r{}\n", known.desired_revision);
        for task in desired::of_host(&self.cluster.state, host).tasks {
            let rank = &task.rank;
            let _ = writeln!(
                text,
                "  task {} at {}:{}{}{}",
                task.key.task,
                rank.master_address,
                rank.master_port,
                if task.released { "" } else { ", waits" },
                if rank.awaits_port {
                    ", awaits a port"
                } else {
                    ""
                },
            );
        }
        Ok(text)
    }

    fn place_all(&mut self, args: &mut Args<'_>) -> Result<String> {
        let job = self.job(args)?;
        Ok(format!("{} placed", self.cluster.place_all(job)))
    }

    fn start_all(&mut self, args: &mut Args<'_>) -> Result<String> {
        let job = self.job(args)?;
        self.cluster.start_all(job);
        Ok(String::new())
    }

    fn report(
        &mut self,
        outcome: &str,
        args: &mut Args<'_>,
        leader: LeadershipEpoch,
    ) -> Result<Command> {
        let job = self.job(args)?;
        let task = TaskIndex(args.positional()?);
        let outcome = match outcome {
            "start" => TaskOutcome::Started,
            "prepared" => TaskOutcome::Prepared {
                master_port: args.key("port")?,
            },
            "gone" => TaskOutcome::Gone {
                detail: args.key_or("detail", "its supervisor vanished".to_owned())?,
            },
            "fenced" => TaskOutcome::Fenced,
            _ => TaskOutcome::Exited(exit(args)?),
        };
        let (unit, epoch) = self.attempt(args, job, task)?;
        Ok(Command::ReportTask(TaskReport {
            leader,
            job,
            unit,
            epoch,
            task,
            outcome,
        }))
    }

    /// Returns the unit of a task, and its current epoch or the one given by the script.
    pub(crate) fn attempt(
        &self,
        args: &mut Args<'_>,
        job: JobId,
        task: TaskIndex,
    ) -> Result<(UnitIndex, AttemptEpoch)> {
        let gang = self.cluster.state.job(job).is_some_and(|job| job.spec.gang);
        let unit = UnitIndex(if gang { 0 } else { task.get() });
        let current = self.cluster.attempt(job, unit);
        let epoch = current.map_or(0, |attempt| attempt.epoch_of(task).get());
        Ok((unit, AttemptEpoch(args.key_or("epoch", epoch)?)))
    }

    fn release(&mut self, args: &mut Args<'_>, leader: LeadershipEpoch) -> Result<Command> {
        let job = self.job(args)?;
        let (unit, epoch) = self.attempt(args, job, TaskIndex(0))?;
        Ok(Command::ReleaseGang {
            leader,
            job,
            unit,
            epoch,
        })
    }

    fn stop(&mut self, args: &mut Args<'_>, leader: LeadershipEpoch) -> Result<Command> {
        let job = self.job(args)?;
        let task = TaskIndex(args.optional()?.unwrap_or(0));
        let reason: String = args.key_or("reason", "preempted".to_owned())?;
        let (unit, epoch) = self.attempt(args, job, task)?;
        Ok(Command::StopAttempt {
            leader,
            job,
            unit,
            epoch,
            reason: match reason.as_str() {
                "preempted" => StopReason::Preempted,
                "lost" => StopReason::MemberLost,
                "drain" => StopReason::Drain { host: HostId(1) },
                "not_swapped" => StopReason::NotSwapped,
                other => return Err(format!("no reason `{other}`").into()),
            },
        })
    }

    fn block(&mut self, args: &mut Args<'_>) -> Result<Command> {
        let later = |span: Option<u64>| span.map(|span_ms| self.cluster.now.after(span_ms));
        let block = Block {
            reason: args.key_or("reason", "fan noise".to_owned())?,
            author: args.key_or("by", "grace".to_owned())?,
            evidence: String::new(),
            since: TimeMs::default(),
            expires_at: later(args.key("expires")?),
            drain_deadline: later(args.key("drain")?),
            planned: {
                let notice_ms: Option<u64> = args.key("notice")?;
                let at = later(args.key("in")?);
                at.map(|at| Planned {
                    at,
                    notice_ms: notice_ms.unwrap_or(Planned::NOTICE_MS_DEFAULT),
                })
            },
        };
        Ok(Command::Block {
            request: self.request(args)?,
            target: target(args)?,
            block,
            spares_last: args.key_or("spares_last", false)?,
        })
    }

    fn checkpoint(&mut self, args: &mut Args<'_>, leader: LeadershipEpoch) -> Result<Command> {
        let job = self.job(args)?;
        let step = args.positional()?;
        let path = args.key_or("path", format!("/ckpt/step_{step}"))?;
        let (unit, epoch) = self.attempt(args, job, TaskIndex(0))?;
        Ok(Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
            leader,
            job,
            unit,
            checkpoint: CheckpointCommit {
                epoch,
                step,
                path,
                size_bytes: 0,
                digest: String::new(),
                save_ms: None,
            },
        }))
    }
}

/// Typed access to arguments.
pub(crate) struct Args<'a>(ArgumentConsumer<'a>);

impl Args<'_> {
    pub(crate) fn optional<T: FromStr>(&mut self) -> Result<Option<T>>
    where
        T::Err: Error + 'static,
    {
        Ok(self.0.next_pos().map(str::parse).transpose()?)
    }

    pub(crate) fn positional<T: FromStr>(&mut self) -> Result<T>
    where
        T::Err: Error + 'static,
    {
        Ok(self.optional()?.ok_or("an argument is missing")?)
    }

    pub(crate) fn key<T: FromStr>(&mut self, key: &str) -> Result<Option<T>>
    where
        T::Err: Error + 'static,
    {
        Ok(self.0.take_key(key).map(str::parse).transpose()?)
    }

    pub(crate) fn key_or<T: FromStr>(&mut self, key: &str, default: T) -> Result<T>
    where
        T::Err: Error + 'static,
    {
        Ok(self.key(key)?.unwrap_or(default))
    }
}

/// `host NUMBER [gpus=4] [model=H100] [worker=] [incarnation=] [boot=] [cpus=] [name=] [last=HOST/INDEX]`;
/// `last` replaces the last GPU by another one.
fn registration(args: &mut Args<'_>) -> Result<HostRegistration> {
    let number: u32 = args.positional()?;
    let model: String = args.key_or("model", "H100".to_owned())?;
    let mut host = host_of_model(number, args.key_or("gpus", 4)?, &model);
    host.incarnation = args.key_or("incarnation", 1)?;
    host.boot_id = args.key_or("boot", host.boot_id)?;
    host.cpus_milli = args.key_or("cpus", host.cpus_milli)?;
    host.name = args.key_or("name", host.name)?;
    if let Some(worker) = args.key("worker")? {
        host.worker_id = request_id(worker);
    }
    if let Some(uuid) = args.key::<String>("last")?
        && let Some(last) = host.gpus.last_mut()
    {
        last.uuid = gpu(&uuid)?;
    }
    Ok(host)
}

fn host_health(args: &mut Args<'_>, leader: LeadershipEpoch) -> Result<Command> {
    let host = HostId(args.positional()?);
    let health = match args.positional::<String>()?.as_str() {
        "up" => HostHealth::Up,
        "suspect" => HostHealth::Suspect,
        _ => HostHealth::Lost,
    };
    Ok(Command::Host(HostCommand::SetHostHealth {
        leader,
        host,
        health,
        one_way: args.key_or("one_way", false)?,
    }))
}

/// `gpu_health HOST/INDEX SIGNAL`, or `ok`; `from=` names another host as the reporter.
fn gpu_health(args: &mut Args<'_>, leader: LeadershipEpoch) -> Result<Command> {
    let text: String = args.positional()?;
    let (host, _) = text.split_once('/').ok_or("a GPU is HOST/INDEX")?;
    let signal: String = args.positional()?;
    Ok(Command::Host(HostCommand::SetGpuHealth {
        leader,
        host: HostId(args.key_or("from", host.parse()?)?),
        gpu: gpu(&text)?,
        health: if signal == "ok" {
            GpuHealth::Healthy
        } else {
            GpuHealth::Faulted {
                signal,
                detail: "seen by the driver".to_owned(),
            }
        },
    }))
}

fn exit(args: &mut Args<'_>) -> Result<Exit> {
    if let Some(error) = args.key::<String>("start_error")? {
        return Ok(start_error(&error));
    }
    let lease_expired = args.key_or("lease_expired", false)?;
    let signal = args.key("signal")?;
    let code = args.optional()?;
    let out_of_memory = args.key_or("out_of_memory", false)?;
    let evidence = args.key::<String>("evidence")?.unwrap_or_default();
    let by_kernel = args.key_or("by_kernel", false)?;
    let seen = LastMeasurements {
        busy_permille: args.key("busy")?,
        leftover_mib: args.key("held")?,
        step: args.key("step")?,
    };
    Ok(Exit {
        last_measurements: (seen != LastMeasurements::default()).then(|| Box::new(seen)),
        code,
        signal,
        lease_expired,
        out_of_memory,
        evidence,
        sender: by_kernel.then_some(SignalSender::Kernel),
        ..exit_with(0)
    })
}

pub(crate) fn gpu(text: &str) -> Result<GpuUuid> {
    let (host, index) = text.split_once('/').ok_or("a GPU is HOST/INDEX")?;
    Ok(gpu_uuid(host.parse()?, index.parse()?))
}

fn target(args: &mut Args<'_>) -> Result<BlockTarget> {
    let text: String = args.positional()?;
    if text.contains('/') {
        return Ok(BlockTarget::Gpu(gpu(&text)?));
    }
    Ok(BlockTarget::Host(text))
}

/// `TASK@HOST` or `TASK@HOST:GPU+GPU`.
pub(crate) fn task_placement(text: &str) -> Result<TaskPlacement> {
    let (task, place) = text.split_once('@').ok_or("a task is TASK@HOST:GPU+GPU")?;
    let (host, gpus) = place.split_once(':').unwrap_or((place, ""));
    let number: u32 = host.parse()?;
    let indexes = gpus.split('+').filter(|index| !index.is_empty());
    Ok(TaskPlacement {
        task: TaskIndex(task.parse()?),
        host: HostId(number),
        gpus: indexes
            .map(|index| Ok(gpu_uuid(number, index.parse()?)))
            .collect::<Result<_>>()?,
    })
}

/// Shortens a long refusal.
fn cut(text: &str) -> String {
    const SHOWN: usize = 400;
    if text.len() <= SHOWN {
        return text.to_owned();
    }
    format!("{}...", &text[..text.floor_char_boundary(SHOWN)])
}
