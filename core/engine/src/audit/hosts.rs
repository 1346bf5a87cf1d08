//! Holders of hosts and GPUs: the records of both sides agree.

use std::collections::BTreeMap;

use muster_model::command::HostHealth;
use muster_model::host::{Holder, Host};
use muster_model::ids::{GpuUuid, HostId};

use crate::audit::{Report, Rule};
use crate::state::{State, TaskRun};

/// Allocations on a host, according to the attempts of all jobs.
#[derive(Default)]
struct Allocated {
    cpus_milli: u64,
    memory_mib: u64,
    gpus: BTreeMap<GpuUuid, Holder>,
}

pub(super) fn check(state: &State, report: &mut Report) {
    let given = given_by_host(state, report);
    for host in given.keys() {
        report.require(
            state.hosts.contains_key(host),
            Rule::Identity,
            &format!("host {host}"),
            || "attempts run on it, and it does not exist".to_owned(),
        );
    }
    let nothing = Allocated::default();
    for (id, host) in &state.hosts {
        check_identity(state, *id, host, report);
        check_holders(host, given.get(id).unwrap_or(&nothing), report);
        check_capacity(host, given.get(id).unwrap_or(&nothing), report);
    }
    check_gpu_hosts(state, report);
}

fn given_by_host(state: &State, report: &mut Report) -> BTreeMap<HostId, Allocated> {
    let mut all: BTreeMap<HostId, Allocated> = BTreeMap::new();
    let mut owners: BTreeMap<GpuUuid, Holder> = BTreeMap::new();
    for (job, record) in &state.jobs {
        for (unit, known) in &record.units {
            for run in known.attempt.iter().flat_map(|attempt| &attempt.tasks) {
                let holder = Holder {
                    job: *job,
                    unit: *unit,
                    epoch: known
                        .attempt
                        .as_ref()
                        .map_or_else(muster_model::ids::AttemptEpoch::default, |attempt| {
                            attempt.epoch
                        }),
                    task: run.task,
                };
                let given = all.entry(run.host).or_default();
                if let Some((group, _)) = record.spec.group_of(run.task) {
                    given.cpus_milli += u64::from(group.resources.cpus_milli);
                    given.memory_mib += group.resources.memory_mib;
                }
                give_gpus(run, holder, given, &mut owners, report);
            }
        }
    }
    all
}

fn give_gpus(
    run: &TaskRun,
    holder: Holder,
    given: &mut Allocated,
    owners: &mut BTreeMap<GpuUuid, Holder>,
    report: &mut Report,
) {
    for gpu in &run.gpus {
        given.gpus.insert(*gpu, holder);
        let earlier = owners.insert(*gpu, holder);
        report.require(earlier.is_none(), Rule::GpuExclusivity, gpu, || {
            format!("two tasks have it: {earlier:?} and {holder:?}")
        });
    }
}

fn check_identity(state: &State, id: HostId, host: &Host, report: &mut Report) {
    let subject = format!("host {id}");
    report.require(
        host.id == id && state.host_names.get(&host.name) == Some(&id),
        Rule::Identity,
        &subject,
        || format!("the name `{}` does not refer to it", host.name),
    );
    report.require(
        host.desired_revision <= state.revision && host.health_since <= state.time,
        Rule::Identity,
        &subject,
        || format!("it changed at revision {}", host.desired_revision),
    );
    report.require(
        !host.one_way || host.health != HostHealth::Up,
        Rule::Identity,
        &subject,
        || "it is up with a one-way link".to_owned(),
    );
}

fn check_holders(host: &Host, given: &Allocated, report: &mut Report) {
    for gpu in &host.gpus {
        let expected = given.gpus.get(&gpu.uuid).copied();
        report.require(
            gpu.holder == expected,
            Rule::GpuExclusivity,
            &gpu.uuid,
            || {
                format!(
                    "host {} says {:?} has it, the attempts say {expected:?}",
                    host.id, gpu.holder
                )
            },
        );
    }
    for uuid in given.gpus.keys() {
        report.require(
            host.gpus.iter().any(|gpu| gpu.uuid == *uuid),
            Rule::GpuExclusivity,
            uuid,
            || format!("a task has it on host {}, which has no such GPU", host.id),
        );
    }
}

/// Checks the allocations of a host. A host that registers with less than it has allocated is over capacity
/// until something ends; the sum of its allocations must be right at any time.
fn check_capacity(host: &Host, given: &Allocated, report: &mut Report) {
    report.require(
        u64::from(host.cpus_milli_used) == given.cpus_milli
            && host.memory_mib_used == given.memory_mib,
        Rule::Capacity,
        &format!("host {}", host.id),
        || {
            format!(
                "it counts {} CPU thousandths and {} MiB given out, its tasks have {} and {}",
                host.cpus_milli_used, host.memory_mib_used, given.cpus_milli, given.memory_mib
            )
        },
    );
}

fn check_gpu_hosts(state: &State, report: &mut Report) {
    let listed: BTreeMap<GpuUuid, HostId> = state
        .hosts
        .values()
        .flat_map(|host| host.gpus.iter().map(|gpu| (gpu.uuid, host.id)))
        .collect();
    let count: usize = state.hosts.values().map(|host| host.gpus.len()).sum();
    let agree = listed.iter().eq(state.gpu_hosts.iter());
    report.require(
        agree && listed.len() == count && state.host_names.len() == state.hosts.len(),
        Rule::Identity,
        &"GPUs",
        || format!("{count} on hosts, {} known by name", state.gpu_hosts.len()),
    );
}
