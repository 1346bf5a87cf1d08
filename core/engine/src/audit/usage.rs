//! Usage of queues and their users, recomputed from the allocations of hosts.

use std::collections::BTreeMap;

use muster_model::command::AllocationBasis;
use muster_model::ids::{GpuUuid, TaskIndex};
use muster_model::quota::Amounts;

use crate::audit::{Report, Rule};
use crate::state::{Job, State, Usage};

/// Usage by queue and user; the empty user stands for the whole queue.
type Sums = BTreeMap<(String, String), Usage>;

pub(super) fn check(state: &State, report: &mut Report) {
    let mut sums = Sums::new();
    let models: BTreeMap<GpuUuid, &str> = state
        .hosts
        .values()
        .flat_map(|host| host.gpus.iter().map(|gpu| (gpu.uuid, gpu.model.as_ref())))
        .collect();
    for job in state.jobs.values() {
        add_job(&mut sums, &models, job);
    }
    // Users that hold nothing are not counted.
    sums.retain(|_, usage| *usage != Usage::default());
    let kept = kept(state);
    report.require(kept == sums, Rule::QueueUsage, &"index.usage", || {
        format!("it counts {kept:?}, jobs have {sums:?}")
    });
}

fn kept(state: &State) -> Sums {
    let mut kept = Sums::new();
    for (name, queue) in &state.index.usage {
        kept.insert((name.to_string(), String::new()), queue.total.clone());
        for (user, usage) in &queue.users {
            kept.insert((name.to_string(), user.to_string()), usage.clone());
        }
    }
    kept
}

fn add_job(sums: &mut Sums, models: &BTreeMap<GpuUuid, &str>, job: &Job) {
    for unit in job.units.values() {
        if let Some(attempt) = &unit.attempt {
            let tasks = attempt
                .tasks
                .iter()
                .map(|run| (run.task, run.gpus.as_slice()));
            let amounts = sum(models, job, tasks);
            let opportunistic = attempt.allocation_basis == AllocationBasis::Opportunistic;
            let stopping = attempt.stop.is_some();
            spread(sums, job, |usage| {
                usage.held.add(&amounts);
                if opportunistic {
                    usage.opportunistic.add(&amounts);
                } else if stopping {
                    usage.stopping.add(&amounts);
                }
            });
        }
        if let Some(claim) = &unit.claim {
            let tasks = claim
                .tasks
                .iter()
                .map(|task| (task.task, task.gpus.as_slice()));
            let amounts = sum(models, job, tasks);
            spread(sums, job, |usage| usage.claimed.add(&amounts));
        }
    }
}

/// Adds to every queue around the job, and to its user in each.
fn spread(sums: &mut Sums, job: &Job, change: impl Fn(&mut Usage)) {
    let parts: Vec<&str> = job.spec.queue.split('/').collect();
    for depth in 1..=parts.len() {
        let queue = parts[..depth].join("/");
        for user in ["", job.spec.user.as_str()] {
            change(sums.entry((queue.clone(), user.to_owned())).or_default());
        }
    }
}

fn sum<'a>(
    models: &BTreeMap<GpuUuid, &str>,
    job: &Job,
    tasks: impl Iterator<Item = (TaskIndex, &'a [GpuUuid])>,
) -> Amounts {
    let mut amounts = Amounts::default();
    for (task, gpus) in tasks {
        let resources = job.spec.group_of(task).map(|(group, _)| &group.resources);
        amounts.cpus_milli += resources.map_or(0, |needs| u64::from(needs.cpus_milli));
        amounts.memory_mib += resources.map_or(0, |needs| needs.memory_mib);
        for gpu in gpus {
            let model = models.get(gpu).copied().unwrap_or_default();
            amounts.gpus += 1;
            *amounts.gpus_by_model.entry(model.to_owned()).or_default() += 1;
        }
    }
    amounts
}
