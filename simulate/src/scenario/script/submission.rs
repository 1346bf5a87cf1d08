//! `submit` statement: every option of a job that the scheduler uses.

use std::sync::Arc;

use muster_harness as testing;
use muster_model::spec::{JobSpec, Layout, Packing, Resources, Scheduling, TaskGroup};

use crate::scenario::script::arguments::Arguments;
use crate::scenario::script::statement::{GpuName, Submission};
use crate::scenario::script::{ScriptError, values};

/// MiB per GiB.
const MIB: u64 = 1_024;
/// Default name of the first group.
const FIRST_GROUP: &str = "main";

type Result<T> = std::result::Result<T, ScriptError>;

pub(crate) fn parse(arguments: &mut Arguments) -> Result<Submission> {
    let further = arguments.split_at("+");
    let name = arguments.value("the job's name", values::text)?;
    let mut spec = base(arguments, &name)?;
    spec.scheduling = scheduling(arguments)?;
    let lasts_ms = arguments.option("lasts", values::duration)?;
    let first = arguments.option_or("group", FIRST_GROUP.to_owned(), values::text)?;
    let (group, gpus) = group(arguments, first)?;
    spec.groups = vec![group];
    let mut bound = vec![gpus];
    for mut part in further {
        let name = part.value("the group's name", values::text)?;
        let (group, gpus) = self::group(&mut part, name)?;
        part.finish()?;
        spec.groups.push(group);
        bound.push(gpus);
    }
    Ok(Submission {
        spec: Arc::new(spec),
        bound,
        lasts_ms,
    })
}

fn base(arguments: &mut Arguments, name: &str) -> Result<JobSpec> {
    let mut spec = if arguments.flag("gang") {
        testing::gang(name, 1, 0)
    } else {
        testing::single(name, 1, 0)
    };
    spec.queue = arguments.option_or("queue", spec.queue, values::text)?;
    spec.user = arguments.option_or("user", spec.user, values::text)?;
    spec.priority = arguments.option_or("priority", 0, values::integer)?;
    let grace_ms = spec.stop_grace_ms;
    spec.stop_grace_ms = arguments.option_or("grace", grace_ms, values::duration)?;
    let retries_max = spec.retry.retries_max;
    spec.retry.retries_max = arguments.option_or("retries", retries_max, values::count)?;
    Ok(spec)
}

fn scheduling(arguments: &mut Arguments) -> Result<Scheduling> {
    let packing = match (
        arguments.flag("pack"),
        arguments.flag("spread"),
        arguments.flag("exclusive"),
    ) {
        (_, false, false) => Packing::Pack,
        (_, true, _) => Packing::Spread,
        (_, false, true) => Packing::Exclusive,
    };
    Ok(Scheduling {
        opportunistic: arguments.flag("opportunistic"),
        lazy_preemption: arguments.flag("lazy"),
        run_time_ms_max: arguments.option("run_time", values::duration)?,
        assembly_ms_max: arguments.option("assembly", values::duration)?,
        within: arguments.option("within", values::within)?,
        packing,
        hosts: arguments.option_or("on", Vec::new(), values::list)?,
        hosts_excluded: arguments.option_or("not_on", Vec::new(), values::list)?,
        pinned_cell: arguments.option("pinned", values::text)?,
    })
}

fn group(arguments: &mut Arguments, name: String) -> Result<(TaskGroup, Vec<GpuName>)> {
    let mut spec = testing::single(&name, 1, 0);
    let mut group = spec.groups.remove(0);
    group.name = name;
    group.count = arguments.option_or("tasks", 1, values::count)?;
    group.resources = Resources {
        gpus: arguments.option_or("gpus", 0, values::count)?,
        gpu_models: arguments.option_or("models", Vec::new(), values::list)?,
        cpus_milli: arguments
            .option_or("cpus", 1, values::count)?
            .saturating_mul(1_000),
        memory_mib: arguments
            .option_or("memory", 1, values::large_count)?
            .saturating_mul(MIB),
    };
    group.tasks_per_host_max = arguments.option("per_host", values::count)?;
    group.layout = Layout {
        count_min: arguments.option("min", values::count)?,
        within: arguments.option("group_within", values::within)?,
        within_tasks: arguments.option("group_tasks", values::count)?,
        gpus: Vec::new(),
    };
    let bound = arguments.option_or("on_gpus", Vec::new(), values::gpus)?;
    Ok((group, bound))
}
