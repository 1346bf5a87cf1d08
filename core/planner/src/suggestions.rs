//! Suggestions for corrections of requests that no host can satisfy: unknown hosts or GPU models, tasks larger
//! than any host.

use std::collections::BTreeSet;

use muster_engine::state::{Job, State};
use muster_model::ids::{TaskIndex, UnitIndex};
use muster_model::spec::{Resources, TaskGroup};
use muster_model::topology::HOST_LEVEL;

use crate::feasibility::enough;
use crate::sentence::cpus;

/// Reason why a unit can never be placed, as far as a name or the size of the hosts shows it; `None`
/// otherwise.
#[must_use]
pub fn suggestions(state: &State, job: &Job, unit: UnitIndex) -> Option<String> {
    let groups: Vec<&TaskGroup> = if job.spec.gang {
        job.spec.groups.iter().collect()
    } else {
        let (group, _) = job.spec.group_of(TaskIndex(unit.get()))?;
        vec![group]
    };
    unknown_hosts(state, job)
        .or_else(|| groups.iter().find_map(|group| unknown_models(state, group)))
        .or_else(|| groups.iter().find_map(|group| too_large(state, group)))
        .or_else(|| too_many_for_a_host(state, job, &groups))
}

/// Unknown hosts, if none of the named hosts exists.
fn unknown_hosts(state: &State, job: &Job) -> Option<String> {
    let hosts = &job.spec.scheduling.hosts;
    let is_known = |name: &String| state.host_names.contains_key(name.as_str());
    match &hosts[..] {
        [] => None,
        names if names.iter().any(is_known) => None,
        names => Some(format!("there is no host {}", names.join(" or "))),
    }
}

/// Unknown models, if none of the requested models exists.
fn unknown_models(state: &State, group: &TaskGroup) -> Option<String> {
    let Resources {
        gpus, gpu_models, ..
    } = &group.resources;
    if *gpus == 0 || gpu_models.is_empty() {
        return None;
    }
    let all = state.hosts.values().flat_map(|host| &host.gpus);
    let there: BTreeSet<&str> = all.map(|gpu| &*gpu.model).collect();
    if gpu_models
        .iter()
        .any(|model| there.contains(model.as_str()))
    {
        return None;
    }
    let asked = gpu_models.join(" or ");
    let others: Vec<&str> = there.into_iter().collect();
    Some(match &others[..] {
        [] => format!("there are no GPUs of model {asked}: the cluster has no GPUs"),
        models => format!(
            "there are no GPUs of model {asked}, only of {}",
            models.join(" and ")
        ),
    })
}

/// The largest host, if a task requests more of a resource than any host has.
fn too_large(state: &State, group: &TaskGroup) -> Option<String> {
    let asked = &group.resources;
    let hosts = || state.hosts.values();
    let gpus = largest(state, asked);
    let cpus_milli = hosts().map(|host| host.cpus_milli).max()?;
    let memory_mib = hosts().map(|host| host.memory_mib).max()?;
    let what = if asked.gpus > gpus {
        format!("{gpus} GPUs of an acceptable model")
    } else if asked.cpus_milli > cpus_milli {
        format!("{} CPUs", cpus(cpus_milli))
    } else if asked.memory_mib > memory_mib {
        format!("{memory_mib} MiB of memory")
    } else {
        return None;
    };
    Some(format!("the largest host has {what}"))
}

/// GPUs of a gang or group that must be within one host, if no host has as many.
fn too_many_for_a_host(state: &State, job: &Job, groups: &[&TaskGroup]) -> Option<String> {
    let within_all = job.spec.scheduling.within.as_ref();
    let asks = |group: &&TaskGroup| {
        let within = group.layout.within.as_ref().or(within_all);
        group.layout.within_tasks.is_none()
            && within.is_some_and(|within| within.required && within.level == HOST_LEVEL)
    };
    let asking: Vec<&TaskGroup> = groups.iter().copied().filter(asks).collect();
    let most = asking
        .iter()
        .map(|group| u64::from(largest(state, &group.resources)))
        .max()?;
    let needs = asking.iter().map(|group| {
        let count = if job.spec.gang { enough(group) } else { 1 };
        u64::from(count) * u64::from(group.resources.gpus)
    });
    let need: u64 = if within_all.is_some() {
        needs.sum()
    } else {
        needs.max()?
    };
    (need > most).then(|| format!("it needs {need} GPUs in one host, the largest has {most}"))
}

/// The most GPUs of acceptable models that a host has.
fn largest(state: &State, asked: &Resources) -> u32 {
    let counts = state.hosts.values().map(|host| {
        let all = host.gpus.iter();
        let accepted = all.filter(|gpu| asked.accepts_model(&gpu.model));
        u32::try_from(accepted.count()).unwrap_or(u32::MAX)
    });
    counts.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use muster_harness::{self as testing, Cluster};
    use muster_model::spec::{JobSpec, Within};

    use super::*;

    /// The suggestion for a job in a cluster of two hosts with eight GPUs, 64 CPUs and 1 TiB.
    fn suggestion_for(change: impl FnOnce(&mut JobSpec)) -> Option<String> {
        let mut cluster = Cluster::with_hosts(2, 8);
        let mut spec = testing::gang("asking", 2, 8);
        change(&mut spec);
        let job = cluster.submit(spec);
        suggestions(&cluster.state, cluster.state.job(job)?, UnitIndex(0))
    }

    #[test]
    fn a_request_that_no_host_satisfies_names_the_alternatives() {
        assert_eq!(suggestion_for(|_| {}), None);
        let named = suggestion_for(|spec| spec.scheduling.hosts = vec!["node99".to_owned()]);
        assert_eq!(named.as_deref(), Some("there is no host node99"));
        let known = ["node-0001", "node99"].map(str::to_owned);
        assert_eq!(
            suggestion_for(|spec| spec.scheduling.hosts = known.into()),
            None
        );
        let model =
            suggestion_for(|spec| spec.groups[0].resources.gpu_models = vec!["H10".to_owned()]);
        let there = model.unwrap_or_default();
        assert!(
            there.starts_with("there are no GPUs of model H10, only of "),
            "{there}"
        );
        let large = suggestion_for(|spec| spec.groups[0].resources.gpus = 16);
        let most = "the largest host has 8 GPUs of an acceptable model";
        assert_eq!(large.as_deref(), Some(most));
        let memory = suggestion_for(|spec| spec.groups[0].resources.memory_mib = 2 << 20);
        assert_eq!(
            memory.as_deref(),
            Some("the largest host has 1048576 MiB of memory")
        );
        let within = suggestion_for(|spec| {
            spec.scheduling.within = Some(Within {
                level: HOST_LEVEL.to_owned(),
                required: true,
            });
        });
        assert_eq!(
            within.as_deref(),
            Some("it needs 16 GPUs in one host, the largest has 8")
        );
    }
}
