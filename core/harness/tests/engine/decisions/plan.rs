//! Scripts about planning: submit jobs, plan, and show placements and blockers.

use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;

use muster_engine::desired;
use muster_harness as testing;
use muster_model::command::{
    Command as Replicated, ConfigCommand, JobDefaults, Planned, TaskOutcome,
};
use muster_model::ids::TaskIndex;
use muster_model::quota::{
    Amounts, CellQuota, Defragment, Guarantee, QueueConfig, QueueOrder, QueueTree,
};
use muster_model::spec::{Condition, Container, Dependency, JobSpec, Packing};
use muster_planner::{Blocker, Budget, explain};

use crate::decisions::cluster::NamedCluster;

#[derive(goldenscript::Command)]
pub(crate) enum Command {
    /// Registers hosts; their names count up from node-0001.
    Hosts {
        count: u32,
        #[arg(key)]
        gpus: Option<u32>,
        #[arg(key)]
        model: Option<String>,
        #[arg(key)]
        cpus: Option<u32>,
    },
    /// Gives a host a container engine, or removes it.
    Engine {
        host: String,
        #[arg(key, optional)]
        gone: bool,
    },
    /// Adds a queue to the tree, or changes it.
    Queue {
        name: String,
        #[arg(key)]
        weight: Option<u32>,
        /// Guaranteed GPUs.
        #[arg(key)]
        guarantee: Option<u64>,
        /// Guaranteed hosts with 4 H100s, which makes it a virtual cluster.
        #[arg(key)]
        cells: Option<u32>,
        /// Limit of GPUs.
        #[arg(key)]
        limit: Option<u64>,
        /// Limit of H100s.
        #[arg(key)]
        limit_h100: Option<u64>,
        /// Limit of GPUs per user.
        #[arg(key)]
        user_limit: Option<u64>,
        #[arg(key)]
        order: Option<String>,
        #[arg(key)]
        borrow: Option<bool>,
        #[arg(key)]
        preempt: Option<bool>,
        #[arg(key)]
        backfill: Option<bool>,
        #[arg(key)]
        reserve_ms: Option<u64>,
        #[arg(key)]
        protected_ms: Option<u64>,
        #[arg(key)]
        movable: Option<bool>,
    },
    /// Takes a queue out of the tree.
    Retire { name: String },
    /// Permits moves of work in movable queues.
    Defragment {
        #[arg(key)]
        moves: Option<u32>,
        #[arg(key)]
        in_flight: Option<u32>,
        #[arg(key)]
        percent: Option<u32>,
    },
    /// Submits a job; `also=2x0` adds a second group of 2 tasks without GPUs.
    Submit {
        name: String,
        #[arg(key, optional)]
        gang: bool,
        #[arg(key)]
        tasks: Option<u32>,
        #[arg(key)]
        gpus: Option<u32>,
        #[arg(key)]
        cpus: Option<u32>,
        #[arg(key)]
        models: Option<String>,
        #[arg(key)]
        per_host: Option<u32>,
        #[arg(key)]
        priority: Option<i32>,
        #[arg(key)]
        queue: Option<String>,
        #[arg(key)]
        user: Option<String>,
        #[arg(key)]
        run_ms: Option<u64>,
        #[arg(key, optional)]
        opportunistic: bool,
        #[arg(key)]
        also: Option<String>,
        /// Maximum number of concurrent tasks.
        #[arg(key)]
        at_once: Option<u32>,
        /// Consecutive retries in place, of 9 retries.
        #[arg(key)]
        local_retries: Option<u32>,
        /// The image of its containers.
        #[arg(key)]
        image: Option<String>,
        /// A job that must have succeeded before.
        #[arg(key)]
        after_ok: Option<String>,
        /// Whether it needs its hosts exclusively.
        #[arg(key, optional)]
        exclusive: bool,
        /// Whether one member of its gang may be replaced.
        #[arg(key, optional)]
        swap: bool,
    },
    /// Plans a round and applies it.
    Plan {
        #[arg(key)]
        placements: Option<usize>,
    },
    /// Explains why a job waits.
    Explain { name: String },
    /// Prints the free index.
    Free,
    /// Prints the desired state of a host.
    Desired { host: String },
    /// Starts and ends all tasks of a job successfully.
    Finish { name: String },
    /// Starts all tasks of a job.
    Start { name: String },
    /// Starts one task of a job.
    Join { name: String, task: u32 },
    /// Expires the lease of a task.
    Fence { name: String, task: u32 },
    /// Ends the tasks of a job that are being stopped.
    Stopped { name: String },
    /// Commits a checkpoint of a job's first unit.
    Checkpoint { name: String },
    /// Starts a task and ends it with exit code 1.
    Fail { name: String, task: u32 },
    /// Ends a task that could not be started.
    Unstartable { name: String, task: u32 },
    /// Sets the cluster's defaults for jobs.
    Defaults,
    /// Cancels a job.
    Cancel { name: String },
    /// Blocks a host or a GPU (node-0001/3).
    Block { target: String },
    /// Plans a block of a host: time until it begins, notice and duration.
    Window {
        host: String,
        span_ms: u64,
        notice_ms: u64,
        #[arg(key, optional)]
        for_ms: Option<u64>,
    },
    /// Removes a block, or cancels a planned one.
    Unblock {
        target: String,
        #[arg(key, optional)]
        planned: bool,
    },
    /// Makes a host up, suspect or lost.
    Health { host: String, health: String },
    /// Makes a GPU unfit.
    Fault { host: String, index: usize },
    /// Advances the time.
    Wait { span_ms: u64 },
}

#[derive(Default)]
pub(crate) struct PlanRunner {
    named: NamedCluster,
    tree: Arc<QueueTree>,
}

impl goldenscript::Runner for PlanRunner {
    type Command = Command;

    fn run(
        &mut self,
        command: &Command,
        _context: &goldenscript::Context,
    ) -> Result<String, Box<dyn Error>> {
        match command {
            Command::Hosts {
                count,
                gpus,
                model,
                cpus,
            } => self.named.add_hosts(
                *count,
                gpus.unwrap_or(8),
                model.as_deref().unwrap_or("H100"),
                cpus.unwrap_or(64),
            ),
            Command::Queue { name, .. } => {
                let tree = Arc::make_mut(&mut self.tree);
                let config = tree.queues.entry(name.clone()).or_default();
                configure(config, command)?;
                self.configure();
            }
            Command::Retire { name } => {
                Arc::make_mut(&mut self.tree).queues.remove(name);
                self.configure();
            }
            Command::Defragment {
                moves,
                in_flight,
                percent,
            } => {
                let default = Defragment::default();
                Arc::make_mut(&mut self.tree).defragment = Some(Defragment {
                    moves_max: moves.unwrap_or(default.moves_max),
                    moves_in_flight_max: in_flight.unwrap_or(default.moves_in_flight_max),
                    cost_percent_max: percent.unwrap_or(default.cost_percent_max),
                    ..default
                });
                self.configure();
            }
            Command::Submit { name, after_ok, .. } => {
                let mut spec = spec_of(command)?;
                if let Some(other) = after_ok {
                    spec.lifecycle.after.push(Dependency {
                        job: self.named.job(other)?,
                        when: Condition::Succeeded,
                    });
                }
                self.named.submit(name, spec);
            }
            Command::Plan { placements } => return Ok(self.plan(*placements)),
            Command::Explain { name } => return self.explain(name),
            Command::Free => return Ok(self.free()),
            Command::Desired { host } => return self.desired(host),
            Command::Finish { name } => {
                let job = self.named.job(name)?;
                self.named.cluster.start_all(job);
                self.named.cluster.finish_all(job);
            }
            Command::Start { name } => {
                let job = self.named.job(name)?;
                self.named.cluster.start_all(job);
            }
            Command::Join { name, task } => {
                let job = self.named.job(name)?;
                let outcome = TaskOutcome::Started;
                self.named.cluster.report(job, TaskIndex(*task), outcome);
            }
            Command::Fence { name, task } => {
                let job = self.named.job(name)?;
                let outcome = TaskOutcome::Fenced;
                self.named.cluster.report(job, TaskIndex(*task), outcome);
            }
            Command::Stopped { name } => {
                let job = self.named.job(name)?;
                self.named.cluster.stop_all(job);
            }
            Command::Checkpoint { name } => {
                let job = self.named.job(name)?;
                self.named.checkpoint(job)?;
            }
            Command::Fail { name, task } => {
                let job = self.named.job(name)?;
                self.named.cluster.start_all(job);
                self.named.cluster.exit(job, *task, testing::exit_with(1));
            }
            Command::Unstartable { name, task } => {
                let job = self.named.job(name)?;
                let exit = testing::start_error("a mount is missing");
                self.named.cluster.exit(job, *task, exit);
            }
            Command::Defaults => {
                let command = Replicated::Config(ConfigCommand::SetJobDefaults {
                    leader: self.named.cluster.leader(),
                    defaults: JobDefaults::default(),
                });
                self.named.apply(&command);
            }
            Command::Cancel { name } => {
                let command = Replicated::CancelJob {
                    request: self.named.cluster.next_request(),
                    job: self.named.job(name)?,
                    author: "ada".to_owned(),
                    reason: String::new(),
                };
                self.named.apply(&command);
            }
            Command::Engine { host, gone } => self.named.equip(host, !gone)?,
            Command::Block { target } => self.named.block(target, None)?,
            Command::Window {
                host,
                span_ms,
                notice_ms,
                for_ms,
            } => {
                let at = self.named.cluster.now.after(*span_ms);
                let notice_ms = *notice_ms;
                let planned = (Planned { at, notice_ms }, for_ms.map(|span| at.after(span)));
                self.named.block(host, Some(planned))?;
            }
            Command::Unblock { target, planned } => self.named.unblock(target, *planned)?,
            Command::Health { host, health } => self.named.set_health(host, health)?,
            Command::Fault { host, index } => self.named.fault(host, *index)?,
            Command::Wait { span_ms } => self.named.cluster.wait(*span_ms),
        }
        Ok(String::new())
    }
}

/// Changes a queue as a `queue` command says.
fn configure(config: &mut QueueConfig, command: &Command) -> Result<(), Box<dyn Error>> {
    let Command::Queue {
        weight,
        guarantee,
        cells,
        limit,
        limit_h100,
        user_limit,
        order,
        borrow,
        preempt,
        backfill,
        reserve_ms,
        protected_ms,
        movable,
        ..
    } = command
    else {
        return Err("not a queue".into());
    };
    config.weight = weight.unwrap_or(config.weight);
    if let Some(gpus) = *guarantee {
        config.guarantee = Guarantee::Amounts(Amounts {
            gpus,
            ..Amounts::default()
        });
    }
    if let Some(count) = *cells {
        config.guarantee = Guarantee::Cells(vec![CellQuota {
            level: "host".to_owned(),
            gpu_model: "H100".to_owned(),
            gpus: 4,
            count,
            pinned: Vec::new(),
        }]);
    }
    config.limit.gpus = limit.or(config.limit.gpus);
    if let Some(gpus) = limit_h100 {
        let by_model = &mut config.limit.gpus_by_model;
        by_model.insert("H100".to_owned(), *gpus);
    }
    config.user_limit.gpus = user_limit.or(config.user_limit.gpus);
    config.order = match order.as_deref() {
        None => config.order,
        Some("fifo") => QueueOrder::Fifo,
        Some("fair") => QueueOrder::Fair,
        Some("priority") => QueueOrder::Priority,
        Some(other) => return Err(format!("no order {other}").into()),
    };
    config.borrow = borrow.unwrap_or(config.borrow);
    config.preempt_by_priority = preempt.unwrap_or(config.preempt_by_priority);
    config.backfill = backfill.unwrap_or(config.backfill);
    config.reserve_after_ms = reserve_ms.unwrap_or(config.reserve_after_ms);
    config.protected_ms = protected_ms.unwrap_or(config.protected_ms);
    config.movable = movable.unwrap_or(config.movable);
    Ok(())
}

/// The specification that a `submit` describes.
fn spec_of(command: &Command) -> Result<JobSpec, Box<dyn Error>> {
    let Command::Submit {
        name,
        gang,
        tasks,
        gpus,
        cpus,
        models,
        per_host,
        priority,
        queue,
        user,
        run_ms,
        opportunistic,
        also,
        at_once,
        local_retries,
        image,
        exclusive,
        swap,
        ..
    } = command
    else {
        return Err("not a submission".into());
    };
    let (tasks, gpus) = (tasks.unwrap_or(1), gpus.unwrap_or(0));
    let mut spec = if *gang {
        testing::gang(name, tasks, gpus)
    } else {
        testing::single(name, tasks, gpus)
    };
    spec.priority = priority.unwrap_or(0);
    if let Some(queue) = queue {
        spec.queue.clone_from(queue);
    }
    if let Some(user) = user {
        spec.user.clone_from(user);
    }
    spec.scheduling.run_time_ms_max = *run_ms;
    spec.scheduling.opportunistic = *opportunistic;
    spec.lifecycle.tasks_at_once_max = *at_once;
    spec.lifecycle.member_swap = *swap;
    if *exclusive {
        spec.scheduling.packing = Packing::Exclusive;
    }
    if let Some(max) = local_retries {
        spec.lifecycle.local_retries_max = *max;
        spec.retry.retries_max = 9;
    }
    let group = &mut spec.groups[0];
    group.tasks_per_host_max = *per_host;
    group.execution.container = image.as_ref().map(|image| Container {
        image: image.clone(),
        ..Container::default()
    });
    if let Some(cpus) = cpus {
        group.resources.cpus_milli = cpus * 1_000;
    }
    if let Some(models) = models {
        group.resources.gpu_models = models.split(',').map(str::to_owned).collect();
    }
    if let Some((count, gpus)) = also.as_ref().and_then(|also| also.split_once('x')) {
        let mut second = group.clone();
        second.name = "second".to_owned();
        second.count = count.parse()?;
        second.resources.gpus = gpus.parse()?;
        spec.groups.push(second);
    }
    Ok(spec)
}

impl PlanRunner {
    fn configure(&mut self) {
        let command = Replicated::Config(ConfigCommand::ConfigureQueues {
            request: self.named.cluster.next_request(),
            author: "grace".to_owned(),
            tree: Arc::clone(&self.tree),
        });
        self.named.apply(&command);
    }

    fn plan(&mut self, placements: Option<usize>) -> String {
        let mut budget = Budget::default();
        if let Some(steps_max) = placements {
            budget.steps_max = steps_max;
        }
        let planned = self.named.plan(budget);
        let mut text = String::new();
        for step in &planned.steps {
            let _infallible = writeln!(text, "{}", self.step(step));
        }
        for (job, blocker) in &planned.blocked {
            let name = self.named.job_name(*job);
            let _infallible = writeln!(text, "{name} waits: {}", self.blocker(blocker));
        }
        if planned.more {
            text.push_str("more\n");
        }
        if text.is_empty() {
            text.push_str("nothing to place\n");
        }
        text
    }

    fn step(&self, step: &Replicated) -> String {
        match step {
            Replicated::Place(placement) => self.named.describe(placement),
            Replicated::SwapMember(swap) => {
                let task = std::slice::from_ref(&swap.task);
                let place = self.named.describe_tasks(swap.unit_id(), task);
                format!("swap {place}")
            }
            Replicated::Claim(claiming) => {
                let now = self.named.cluster.now;
                let when = claiming.expected_at;
                let when =
                    when.map_or("some time".to_owned(), |at| format!("{} ms", at.since(now)));
                let victims: Vec<String> = claiming
                    .victims
                    .iter()
                    .map(|victim| format!("{}/{}", self.named.job_name(victim.job), victim.unit))
                    .collect();
                let whom = match victims.is_empty() {
                    true => String::new(),
                    false => format!(", preempts {}", victims.join(" ")),
                };
                let what = self
                    .named
                    .describe_tasks(claiming.unit_id(), &claiming.tasks);
                let mut moves = String::new();
                for one in claiming.moving.iter().flat_map(|moving| &moving.moves) {
                    let unit = one.attempt.unit_id();
                    let place = self.named.describe_tasks(unit, &one.tasks);
                    let _infallible = write!(moves, ", moves {place}");
                }
                format!("claim in {when}{whom}: {what}{moves}")
            }
            Replicated::DropClaim {
                job, unit, reason, ..
            } => {
                format!(
                    "drop claim of {}/{unit}: {reason}",
                    self.named.job_name(*job)
                )
            }
            other => format!("{other:?}"),
        }
    }

    /// Shows times relative to now, jobs by name.
    fn blocker(&self, blocker: &Blocker) -> String {
        match blocker {
            Blocker::BackOff { until } => {
                format!("back-off for {} ms", until.since(self.named.cluster.now))
            }
            Blocker::BehindHead { ahead } => format!("behind {}", self.named.job_name(*ahead)),
            Blocker::Limit(limit) => limit.to_string(),
            Blocker::Reserved {
                victims,
                expected_at,
            } => {
                let now = self.named.cluster.now;
                let when = expected_at
                    .map_or("some time".to_owned(), |at| format!("{} ms", at.since(now)));
                format!("reserved, free in {when}, {victims} preempted for it")
            }
            Blocker::Moving {
                moves,
                cost_gpu_ms,
                gain_gpu_ms,
                ..
            } => format!("{moves} moved for it, cost {cost_gpu_ms}, gain {gain_gpu_ms}"),
            other => format!("{other:?}"),
        }
    }

    fn explain(&self, name: &str) -> Result<String, Box<dyn Error>> {
        let cluster = &self.named.cluster;
        let job = self.named.job(name)?;
        let explanation = explain(&cluster.state, job, cluster.now).ok_or("no such job")?;
        let mut text = String::new();
        let blocker = explanation.blocker.as_ref();
        let blocker = blocker.map_or("nothing".to_owned(), |blocker| self.blocker(blocker));
        writeln!(text, "blocker: {blocker}")?;
        let position = explanation.position.unwrap_or_default();
        writeln!(
            text,
            "waiting: {} units, {} jobs ahead",
            explanation.waiting_units, position.ahead_in_queue
        )?;
        for class in &explanation.classes {
            writeln!(
                text,
                "class {:?}: {} of {} hosts accept work; GPUs: \
                 {} free + {} reserved + {} held + {} faulted + {} blocked + {} silent = {}",
                class.model,
                class.hosts_accepting,
                class.hosts,
                class.gpus_free,
                class.gpus_reserved,
                class.gpus_held,
                class.gpus_faulted,
                class.gpus_blocked,
                class.gpus_silent,
                class.gpus,
            )?;
        }
        if let Some(remedy) = &explanation.remedy {
            writeln!(text, "remedy: {remedy}")?;
        }
        if let Some(start) = &explanation.start {
            let span_ms = start.at.since(cluster.now);
            writeln!(text, "start: in {span_ms} ms ({:?})", start.basis)?;
        }
        Ok(text)
    }

    fn free(&self) -> String {
        let mut text = String::new();
        for (class, hosts) in &self.named.state().index.free {
            let hosts: Vec<String> = hosts
                .iter()
                .map(|(free, host)| format!("{}:{free}", self.named.host_name(*host)))
                .collect();
            let _infallible = writeln!(text, "{class:?}: {}", hosts.join(" "));
        }
        text
    }

    fn desired(&self, host: &str) -> Result<String, Box<dyn Error>> {
        let desired = desired::of_host(self.named.state(), self.named.host(host)?);
        let mut text = String::new();
        for task in &desired.tasks {
            let rank = &task.rank;
            writeln!(
                text,
                "{}/{} attempt {} {:?} {:?}: rank {}/{} local {} node {}/{} at {}:{} gpus {}{}",
                self.named.job_name(task.key.job),
                task.key.task,
                task.attempt,
                task.restart_reason,
                task.acknowledged,
                rank.rank,
                rank.world_size,
                rank.local_rank,
                rank.node_rank,
                rank.nodes,
                rank.master_address,
                rank.master_port,
                task.gpus.len(),
                task.stop
                    .as_ref()
                    .map(|stop| format!(" stop ({}, {} ms)", stop.reason, stop.grace_ms))
                    .unwrap_or_default(),
            )?;
        }
        if text.is_empty() {
            text.push_str("nothing to run\n");
        }
        Ok(text)
    }
}
