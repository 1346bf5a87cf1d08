//! Claims: the records of units and of hosts agree, and attempts hold only cells that they may.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::command::{AllocationBasis, GpuHealth, HostHealth, StopReason};
use muster_model::host::Host;
use muster_model::ids::{GpuUuid, HostId, JobId, UnitId, UnitIndex};
use muster_model::lifecycle::UnitPhase;
use muster_model::limits;
use muster_model::quota::Guarantee;
use muster_model::spec::Packing;

use crate::audit::{Report, Rule};
use crate::state::{Claim, Job, Purpose, State, Unit};

/// CPUs and memory claimed on a host.
type Needs = (u64, u64);

/// Everything that units claim.
#[derive(Default)]
struct Claimed {
    gpus: BTreeMap<GpuUuid, (HostId, UnitId)>,
    needs: BTreeMap<(HostId, UnitId), Needs>,
    units: usize,
}

pub(super) fn check(state: &State, report: &mut Report) {
    let mut claimed = Claimed::default();
    for job in state.jobs.values() {
        for (index, unit) in &job.units {
            check_unit(job, *index, unit, report);
            collect(job, *index, unit, &mut claimed, report);
            check_cells(state, job, *index, unit, report);
        }
    }
    report.require(
        claimed.units <= limits::CLAIMS_MAX,
        Rule::Limits,
        &"claims",
        || format!("{} units have one", claimed.units),
    );
    check_hosts(state, &claimed, report);
}

fn check_unit(job: &Job, index: UnitIndex, unit: &Unit, report: &mut Report) {
    let Some(claim) = &unit.claim else { return };
    let subject = format!("job {} unit {index}", job.id);
    let stop = unit
        .attempt
        .as_ref()
        .and_then(|attempt| attempt.stop.as_ref());
    let is_destination = matches!(claim.purpose, Purpose::Destination { .. });
    let leaves = is_destination
        && unit.phase == UnitPhase::Stopping
        && stop.is_some_and(|stop| stop.reason == StopReason::Defragmented);
    report.require(
        (unit.phase == UnitPhase::Waiting || leaves) && !claim.tasks.is_empty(),
        Rule::Claims,
        &subject,
        || format!("it is {:?} and has a claim", unit.phase),
    );
    check_purpose(claim, &subject, report);
    report.require(
        !is_destination || unit.moved_at == Some(claim.since),
        Rule::Claims,
        &subject,
        || {
            format!(
                "it is moved since {}, and says {:?}",
                claim.since, unit.moved_at
            )
        },
    );
    report.require(
        claim.victims.len() <= limits::VICTIMS_PER_CLAIM_MAX,
        Rule::Limits,
        &subject,
        || format!("its claim has {} victims", claim.victims.len()),
    );
}

/// Checks the moves of a claim: their number, that they ascend, and that it has no other victims; only units
/// on shares are moved, and only for units on shares.
fn check_purpose(claim: &Claim, subject: &str, report: &mut Report) {
    let sound = match &claim.purpose {
        Purpose::Ordinary => true,
        Purpose::Gathered { moved, .. } => {
            (1..=limits::MOVES_PER_CLAIM_MAX as usize).contains(&moved.len())
                && moved.windows(2).all(|pair| pair[0] < pair[1])
        }
        Purpose::Destination { .. } => true,
    };
    let plain = claim.victims.is_empty() && claim.allocation_basis == AllocationBasis::Share;
    let moves = claim.purpose != Purpose::Ordinary;
    report.require(sound && (plain || !moves), Rule::Claims, &subject, || {
        format!("its claim says {:?}", claim.purpose)
    });
}

fn collect(job: &Job, index: UnitIndex, unit: &Unit, claimed: &mut Claimed, report: &mut Report) {
    let Some(claim) = &unit.claim else { return };
    claimed.units += 1;
    for task in claim.tasks.iter() {
        let by = (task.host, UnitId::new(job.id, index));
        let needs = claimed.needs.entry(by).or_default();
        if let Some((group, _)) = job.spec.group_of(task.task) {
            needs.0 += u64::from(group.resources.cpus_milli);
            needs.1 += group.resources.memory_mib;
        }
        for gpu in &task.gpus {
            let earlier = claimed.gpus.insert(*gpu, by);
            report.require(earlier.is_none(), Rule::Claims, gpu, || {
                format!("it is claimed twice: {earlier:?} and {by:?}")
            });
        }
    }
}

/// Checks that exclusive jobs share no claimed host: two jobs that wait for one host, one of them
/// exclusively, would wait for each other forever.
fn check_company(state: &State, host: &Host, report: &mut Report) {
    let jobs: BTreeSet<JobId> = host.claims.iter().map(|claim| claim.job).collect();
    let is_exclusive = |id: &JobId| {
        let job = state.job(*id);
        job.is_some_and(|job| job.spec.scheduling.packing == Packing::Exclusive)
    };
    report.require(
        jobs.len() < 2 || !jobs.iter().any(is_exclusive),
        Rule::Claims,
        &format!("host {}", host.id),
        || format!("jobs {jobs:?} have claims there, and one of them needs it exclusively"),
    );
}

fn check_hosts(state: &State, claimed: &Claimed, report: &mut Report) {
    let mut needs = BTreeMap::new();
    let mut gpus = BTreeMap::new();
    for host in state.hosts.values() {
        for claim in &host.claims {
            let by = (host.id, claim.unit_id());
            needs.insert(by, (u64::from(claim.cpus_milli), claim.memory_mib));
            let takes_work = host.health == HostHealth::Up && host.block.is_none();
            report.require(
                takes_work,
                Rule::Claims,
                &format!("host {}", host.id),
                || {
                    format!(
                        "job {} has a claim there, and it accepts no work",
                        claim.job
                    )
                },
            );
        }
        check_company(state, host, report);
        report.require(
            host.claims.is_sorted(),
            Rule::Claims,
            &format!("host {}", host.id),
            || "its claims are out of order".to_owned(),
        );
        for gpu in &host.gpus {
            if let Some(claimant) = gpu.claim {
                gpus.insert(gpu.uuid, (host.id, claimant));
                let fit = gpu.health == GpuHealth::Healthy && gpu.block.is_none();
                report.require(fit, Rule::Claims, &gpu.uuid, || {
                    format!("{claimant} claims it, and it is unusable")
                });
            }
        }
    }
    report.require(needs == claimed.needs, Rule::Claims, &"hosts", || {
        format!(
            "they say {needs:?} is claimed, units say {:?}",
            claimed.needs
        )
    });
    report.require(gpus == claimed.gpus, Rule::Claims, &"GPUs", || {
        format!(
            "hosts say {gpus:?} are claimed, units say {:?}",
            claimed.gpus
        )
    });
}

/// Checks that only virtual clusters hold resources by cells.
fn check_cells(state: &State, job: &Job, index: UnitIndex, unit: &Unit, report: &mut Report) {
    let standings = [
        unit.attempt
            .as_ref()
            .map(|attempt| &attempt.allocation_basis),
        unit.claim.as_ref().map(|claim| &claim.allocation_basis),
    ];
    for allocation_basis in standings.into_iter().flatten() {
        let AllocationBasis::Cells(cells) = allocation_basis else {
            continue;
        };
        let queue = state.queues.get(job.spec.queue.as_str());
        let guaranteed = queue.is_some_and(|queue| {
            !queue.retired && matches!(queue.config.guarantee, Guarantee::Cells(_))
        });
        report.require(
            guaranteed && cells.windows(2).all(|pair| pair[0] < pair[1]),
            Rule::Claims,
            &format!("job {} unit {index}", job.id),
            || format!("queue `{}` does not guarantee it {cells:?}", job.spec.queue),
        );
    }
}
