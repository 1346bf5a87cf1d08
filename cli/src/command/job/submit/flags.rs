//! Flags for the simple case: a job of one task group.

use std::time::Duration;

use clap::Args;
use muster_job_file::{NamedSpec, broken_rules, rule_in_file};
use muster_proto::v1;

use crate::command::job::submit::execution_flags::{self, ExecutionFlags};
use crate::command::job::submit::lifecycle_flags::{self, LifecycleFlags};
use crate::command::job::submit::scheduling_flags::{self, SchedulingFlags};
use crate::connection::current_user;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::parse::{self, CpuCount, HumanSize};

/// A job of one task group.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Job")]
pub(crate) struct SpecFlags {
    /// Name of the job; by default the program's
    #[arg(long)]
    name: Option<String>,
    /// Queue of the job (default)
    #[arg(long)]
    queue: Option<String>,
    /// Higher goes first (0)
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i32>,
    /// All tasks start together or not at all, and restart together
    #[arg(long)]
    gang: bool,
    /// Number of tasks (1)
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    tasks: Option<u32>,
    /// Whole GPUs per task
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    gpus: Option<u32>,
    /// Acceptable GPU models, comma separated
    #[arg(long, value_name = "MODELS", value_delimiter = ',')]
    gpu_model: Vec<String>,
    /// CPUs per task: 4 or 0.5
    #[arg(long, value_name = "COUNT", value_parser = parse::cpu_count)]
    cpus: Option<CpuCount>,
    /// Memory per task: 16GiB
    #[arg(long, value_name = "SIZE", value_parser = parse::size)]
    memory: Option<HumanSize>,
    /// Maximum number of tasks on one host
    #[arg(long, value_name = "COUNT")]
    tasks_per_host: Option<u32>,
    /// An environment variable: NAME=VALUE
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::assignment)]
    env: Vec<(String, String)>,
    /// Absolute working directory; by default the task's own scratch folder
    #[arg(long, value_name = "FOLDER")]
    workdir: Option<String>,
    /// Retries after failures caused by the job itself (0)
    #[arg(long, value_name = "COUNT")]
    retries: Option<u32>,
    /// Wait before the first retry, doubled for every further one
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, requires = "retries")]
    backoff: Option<Duration>,
    /// Time between asking a task to stop and killing it (30s)
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    stop_grace: Option<Duration>,
    /// How long a task continues without contact to any leader (45s, gangs 5m)
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    partition_grace: Option<Duration>,
    /// A label: NAME=VALUE
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::assignment)]
    label: Vec<(String, String)>,
    #[command(flatten)]
    scheduling: SchedulingFlags,
    #[command(flatten)]
    lifecycle: LifecycleFlags,
    #[command(flatten)]
    execution: ExecutionFlags,
    /// The program and its arguments, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl SpecFlags {
    /// The first flag that is given, if any.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--name", self.name.is_some()),
            ("--queue", self.queue.is_some()),
            ("--priority", self.priority.is_some()),
            ("--gang", self.gang),
            ("--tasks", self.tasks.is_some()),
            ("--gpus", self.gpus.is_some()),
            ("--gpu-model", !self.gpu_model.is_empty()),
            ("--cpus", self.cpus.is_some()),
            ("--memory", self.memory.is_some()),
            ("--tasks-per-host", self.tasks_per_host.is_some()),
            ("--env", !self.env.is_empty()),
            ("--workdir", self.workdir.is_some()),
            ("--retries", self.retries.is_some()),
            ("--stop-grace", self.stop_grace.is_some()),
            ("--partition-grace", self.partition_grace.is_some()),
            ("--label", !self.label.is_empty()),
            ("a command", !self.command.is_empty()),
        ];
        given
            .iter()
            .chain(&self.scheduling.given())
            .chain(&self.lifecycle.given())
            .chain(&self.execution.given())
            .find(|(_, given)| *given)
            .map(|(flag, _)| *flag)
    }

    /// The validated job.
    pub(crate) fn spec(&self) -> Result<NamedSpec, Failure> {
        if self.command.is_empty() && self.execution.image().is_none() {
            let message = "nothing to run: give a command or a job file";
            return Err(Failure::usage(message).help(
                "muster job submit [--gpus 2] [--tasks 4] -- COMMAND [ARGUMENTS], or -f FILE",
            ));
        }
        let spec = self.wire();
        let violations = broken_rules(spec.clone());
        if violations.is_empty() {
            let origin = "the command line".to_owned();
            return Ok(NamedSpec { origin, spec });
        }
        let lines = violations
            .iter()
            .map(|violation| format!("{}: {}", flag_of(&violation.field), rule_in_file(violation)));
        Err(Failure::list(lines.collect()).exiting(Exit::Usage))
    }

    fn wire(&self) -> v1::JobSpec {
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let image = self.execution.image().unwrap_or_default();
        let program = self.command.first().map_or(image, String::as_str);
        let name = program.rsplit('/').next().unwrap_or(program);
        v1::JobSpec {
            name: self.name.clone().unwrap_or_else(|| name.to_owned()),
            user: current_user(),
            queue: self.queue.clone(),
            priority: self.priority.unwrap_or_default(),
            gang: self.gang,
            groups: vec![self.group()],
            retry: self.retries.map(|retries_max| v1::RetryPolicy {
                retries_max,
                backoff_ms: self.backoff.map_or(0, ms),
            }),
            partition_grace_ms: self.partition_grace.map(ms),
            stop_grace_ms: self.stop_grace.map(ms),
            labels: self.label.iter().cloned().collect(),
            scheduling: Some(self.scheduling.scheduling(self.gang)),
            lifecycle: Some(self.lifecycle.lifecycle()),
        }
    }

    fn group(&self) -> v1::TaskGroup {
        v1::TaskGroup {
            name: None,
            count: self.tasks,
            resources: Some(v1::Resources {
                gpus: self.gpus.unwrap_or_default(),
                gpu_models: self.gpu_model.clone(),
                cpus_milli: self.cpus.map_or(0, |cpus| cpus.milli),
                memory_mib: self.memory.map_or(0, |memory| memory.mib),
            }),
            command: self.command.clone(),
            environment: self.env.iter().cloned().collect(),
            working_directory: self.workdir.clone(),
            tasks_per_host_max: self.tasks_per_host,
            layout: Some(self.scheduling.layout(self.gang)),
            execution: Some(self.execution.execution()),
        }
    }
}

/// The flag that sets a field of the specification.
fn flag_of(field: &str) -> &str {
    match field {
        "name" => "--name",
        "user" => "the user (MUSTER_USER)",
        "queue" => "--queue",
        "priority" => "--priority",
        "labels" => "--label",
        "retry.retries_max" => "--retries",
        "partition_grace_ms" => "--partition-grace",
        "stop_grace_ms" => "--stop-grace",
        "groups" | "groups[0].count" => "--tasks",
        "groups[0].command" => "the command",
        "groups[0].resources.gpus" => "--gpus",
        "groups[0].tasks_per_host_max" => "--tasks-per-host",
        "groups[0].working_directory" => "--workdir",
        "groups[0].environment" => "--env",
        other => scheduling_flags::flag_of(other)
            .or_else(|| lifecycle_flags::flag_of(other))
            .or_else(|| execution_flags::flag_of(other))
            .unwrap_or(other),
    }
}
