//! Scripts about planning: submit, plan, see what is placed where and why the rest is not.

use std::error::Error;
use std::fmt::Write as _;

use muster_core::command::Command as Replicated;
use muster_core::desired;
use muster_core::plan::{Blocker, Budget, explain};
use muster_core::spec::JobSpec;
use muster_core::testing;

use crate::cluster::NamedCluster;

#[derive(goldenscript::Command)]
pub(crate) enum Command {
    /// Registers hosts; their names count on from node-0001.
    Hosts {
        count: u32,
        #[arg(key)]
        gpus: Option<u32>,
        #[arg(key)]
        model: Option<String>,
        #[arg(key)]
        cpus: Option<u32>,
    },
    /// Creates a queue.
    Queue { name: String },
    /// Submits a job; `also=2x0` gives it a second group of 2 tasks without GPUs.
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
        also: Option<String>,
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
    /// Prints what a host should run.
    Desired { host: String },
    /// Starts and ends all tasks of a job well.
    Finish { name: String },
    /// Starts a task and ends it with exit code 1.
    Fail { name: String, task: u32 },
    /// Asks for a job's end.
    Cancel { name: String },
    /// Takes a host or a GPU (node-0001/3) out.
    Block { target: String },
    /// Lets it back in.
    Unblock { target: String },
    /// Makes a host up, suspect or lost.
    Health { host: String, health: String },
    /// Makes a GPU unfit.
    Fault { host: String, index: usize },
    /// Lets time pass.
    Wait { span_ms: u64 },
}

#[derive(Default)]
pub(crate) struct PlanRunner {
    named: NamedCluster,
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
            Command::Queue { name } => {
                let command = Replicated::SetQueue {
                    request: self.named.cluster.next_request(),
                    name: name.clone(),
                    live_jobs_max: 1_000,
                };
                self.named.apply(&command);
            }
            Command::Submit { name, .. } => self.named.submit(name, spec_of(command)?),
            Command::Plan { placements } => return Ok(self.plan(*placements)),
            Command::Explain { name } => return self.explain(name),
            Command::Free => return Ok(self.free()),
            Command::Desired { host } => return self.desired(host),
            Command::Finish { name } => {
                let job = self.named.job(name)?;
                self.named.cluster.start_all(job);
                self.named.cluster.finish_all(job);
            }
            Command::Fail { name, task } => {
                let job = self.named.job(name)?;
                self.named.cluster.start_all(job);
                self.named.cluster.exit(job, *task, testing::exit_with(1));
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
            Command::Block { target } => self.named.block(target)?,
            Command::Unblock { target } => self.named.unblock(target)?,
            Command::Health { host, health } => self.named.set_health(host, health)?,
            Command::Fault { host, index } => self.named.fault(host, *index)?,
            Command::Wait { span_ms } => self.named.cluster.wait(*span_ms),
        }
        Ok(String::new())
    }
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
        also,
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
    let group = &mut spec.groups[0];
    group.tasks_per_host_max = *per_host;
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
    fn plan(&mut self, placements: Option<usize>) -> String {
        let mut budget = Budget::default();
        if let Some(steps_max) = placements {
            budget.steps_max = steps_max;
        }
        let planned = self.named.plan(budget);
        let mut text = String::new();
        for placement in planned.placements() {
            let _infallible = writeln!(text, "{}", self.named.describe(placement));
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

    /// Times relative to now, jobs by name.
    fn blocker(&self, blocker: &Blocker) -> String {
        match blocker {
            Blocker::BackOff { until } => {
                format!("back-off for {} ms", until.since(self.named.cluster.now))
            }
            Blocker::Behind { ahead } => format!("behind {}", self.named.job_name(*ahead)),
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
        writeln!(
            text,
            "waiting: {} units, {} jobs ahead",
            explanation.waiting_units, explanation.ahead
        )?;
        for class in &explanation.classes {
            writeln!(
                text,
                "class {:?}: {} of {} hosts accept work; GPUs: {} free + {} held + {} faulted + {} blocked + {} silent = {}",
                class.model,
                class.hosts_accepting,
                class.hosts,
                class.gpus_free,
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
