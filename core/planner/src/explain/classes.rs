//! Counts of the hosts and GPUs that a job may use, by GPU model.

use std::collections::BTreeMap;

use muster_engine::feasibility::unequipped;
use muster_engine::state::{HostClass, Job, PlacementClass, State};
use muster_model::command::{GpuHealth, HostHealth};
use muster_model::host::Host;
use serde::{Deserialize, Serialize};

/// Hosts of one class and the use of their GPUs: each GPU is counted once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassCount {
    /// GPU model; empty for hosts without GPUs.
    pub model: String,
    /// Number of hosts.
    pub hosts: u64,
    /// Number of hosts that accept work.
    pub hosts_accepting: u64,
    /// Total GPUs.
    pub gpus: u64,
    /// GPUs that can be allocated now.
    pub gpus_free: u64,
    /// Unheld GPUs reserved for waiting units.
    pub gpus_reserved: u64,
    /// GPUs held by tasks.
    pub gpus_held: u64,
    /// Faulty GPUs.
    pub gpus_faulted: u64,
    /// Healthy GPUs that are blocked, or whose host is.
    pub gpus_blocked: u64,
    /// Healthy GPUs of unreachable hosts.
    pub gpus_silent: u64,
}

/// Counts the hosts and GPUs that the job may use.
pub(super) fn class_counts(state: &State, job: &Job) -> Vec<ClassCount> {
    let needs_gpus = PlacementClass::of(job).needs_gpus();
    let acceptable = |model: &str| {
        let mut groups = job.spec.groups.iter();
        groups.any(|group| group.resources.gpus > 0 && group.resources.accepts_model(model))
    };
    let mut counts: BTreeMap<HostClass, ClassCount> = BTreeMap::new();
    let equipped = |host: &Host| {
        let mut groups = job.spec.groups.iter();
        groups.any(|group| unequipped(group, host).is_none())
    };
    for host in state.hosts.values().filter(|host| equipped(host)) {
        if host.gpus.is_empty() && !needs_gpus {
            count_host(counts.entry(HostClass::from("")).or_default(), host);
        }
        let mut models: Vec<&HostClass> = host.gpus.iter().map(|gpu| &gpu.model).collect();
        models.sort();
        models.dedup();
        for model in models {
            if !needs_gpus || acceptable(model) {
                let count = counts.entry(HostClass::clone(model)).or_default();
                count_host(count, host);
                count_gpus(count, host, model);
            }
        }
    }
    counts
        .into_iter()
        .map(|(model, count)| ClassCount {
            model: model.as_ref().to_owned(),
            ..count
        })
        .collect()
}

fn count_host(count: &mut ClassCount, host: &Host) {
    count.hosts += 1;
    count.hosts_accepting += u64::from(host.accepts_work());
}

fn count_gpus(count: &mut ClassCount, host: &Host, model: &HostClass) {
    for gpu in host.gpus.iter().filter(|gpu| gpu.model == *model) {
        count.gpus += 1;
        let counter = if gpu.holder.is_some() {
            &mut count.gpus_held
        } else if gpu.health != GpuHealth::Healthy {
            &mut count.gpus_faulted
        } else if gpu.block.is_some() || host.block.is_some() {
            &mut count.gpus_blocked
        } else if host.health != HostHealth::Up {
            &mut count.gpus_silent
        } else if gpu.claim.is_some() {
            &mut count.gpus_reserved
        } else {
            &mut count.gpus_free
        };
        *counter += 1;
    }
}
