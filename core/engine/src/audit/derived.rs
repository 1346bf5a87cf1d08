//! Derived data: the index and the counts of queues.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::command::{AllocationBasis, GpuHealth, HostHealth};
use muster_model::host::Host;
use muster_model::ids::HostId;
use muster_model::time::TimeMs;

use crate::audit::{Report, Rule, jobs};
use crate::state::{BasisKind, Index, State};

pub(super) fn check(state: &State, report: &mut Report) {
    check_rebuilt(state, report);
    check_free(state, report);
    check_waiting(state, report);
    check_queues(state, report);
    check_attempts(state, report);
}

fn check_rebuilt(state: &State, report: &mut Report) {
    let rebuilt = Index::rebuild(state);
    let kept = &state.index;
    let parts = [
        ("waiting", kept.waiting == rebuilt.waiting),
        ("run_times", kept.run_times == rebuilt.run_times),
        ("totals", kept.totals == rebuilt.totals),
        ("pools", kept.pools == rebuilt.pools),
        ("delayed", kept.delayed == rebuilt.delayed),
        ("free", kept.free == rebuilt.free),
        ("on_host", kept.units_on_host == rebuilt.units_on_host),
        ("tasks", kept.tasks == rebuilt.tasks),
        ("finished", kept.finished == rebuilt.finished),
        ("block_changes", kept.block_changes == rebuilt.block_changes),
        ("planned", kept.planned == rebuilt.planned),
        ("usage", kept.usage == rebuilt.usage),
        ("allocation", kept.allocation == rebuilt.allocation),
        ("deadlines", kept.deadlines == rebuilt.deadlines),
        ("whole", kept.prepared_gangs == rebuilt.prepared_gangs),
        ("vacant", kept.vacant == rebuilt.vacant),
        ("suspended", kept.suspended == rebuilt.suspended),
        ("tree", kept.tree == rebuilt.tree),
        ("topology", state.topology == *rebuilt.tree.topology()),
        ("host_cells", kept.host_cells == rebuilt.host_cells),
        ("cells", kept.cells == rebuilt.cells),
        ("attempts", kept.attempts == rebuilt.attempts),
        ("held", kept.open_dependencies == rebuilt.open_dependencies),
        ("pipelines", kept.pipelines == rebuilt.pipelines),
        ("claims", kept.claims == rebuilt.claims),
    ];
    for (part, equal) in parts {
        report.require(equal, Rule::Derived, &format!("index.{part}"), || {
            "it differs from the one rebuilt from the rest".to_owned()
        });
    }
}

/// Checks that no blocked, unfit, held or unreachable resource is offered, and that offers are counted
/// correctly.
fn check_free(state: &State, report: &mut Report) {
    let mut offered: BTreeMap<(String, HostId), u32> = BTreeMap::new();
    for (class, hosts) in &state.index.free {
        for (count, host) in hosts {
            let earlier = offered.insert((class.to_string(), *host), *count);
            report.require(
                earlier.is_none(),
                Rule::Derived,
                &format!("host {host}"),
                || format!("it is offered twice as `{class}`"),
            );
        }
    }
    let expected: BTreeMap<(String, HostId), u32> = state
        .hosts
        .values()
        .filter(|host| host.health == HostHealth::Up && host.block.is_none())
        .flat_map(|host| expected_offers(host))
        .collect();
    report.require(offered == expected, Rule::Derived, &"index.free", || {
        format!("it offers {offered:?}, the hosts have {expected:?}")
    });
}

fn expected_offers(host: &Host) -> BTreeMap<(String, HostId), u32> {
    let mut offers = BTreeMap::from([((String::new(), host.id), 0)]);
    for gpu in &host.gpus {
        let fit = gpu.health == GpuHealth::Healthy && gpu.block.is_none();
        let free = u32::from(fit && gpu.holder.is_none() && gpu.claim.is_none());
        for class in ["", gpu.model.as_ref()] {
            *offers.entry((class.to_owned(), host.id)).or_default() += free;
        }
    }
    offers
}

/// Checks that exactly the jobs with waiting units are indexed for the planner.
fn check_waiting(state: &State, report: &mut Report) {
    let mut seen: BTreeMap<_, usize> = BTreeMap::new();
    for (class, jobs) in &state.index.waiting {
        let queue = &class.queue;
        for (_, job) in jobs {
            *seen.entry(*job).or_default() += 1;
            let right = state
                .job(*job)
                .is_some_and(|job| *job.spec.queue == **queue);
            report.require(right, Rule::Unindexed, &format!("job {job}"), || {
                format!("it waits in queue `{queue}`, which is not its own")
            });
        }
    }
    for (id, job) in &state.jobs {
        let waits =
            job.counts.waiting > 0 && job.suspension.is_none() && !jobs::is_held(state, job);
        report.require(
            seen.get(id).copied().unwrap_or(0) == usize::from(waits),
            Rule::Unindexed,
            &format!("job {id}"),
            || {
                format!(
                    "{} of its units wait without an entry for the planner",
                    job.counts.waiting
                )
            },
        );
    }
}

fn check_queues(state: &State, report: &mut Report) {
    for (name, queue) in &state.queues {
        let live = state
            .jobs
            .values()
            .filter(|job| job.spec.queue == **name && !job.phase.is_terminal())
            .count() as u64;
        report.require(
            queue.live_jobs == live && queue.name == *name && (live > 0 || is_needed(state, name)),
            Rule::QueueUsage,
            &format!("queue `{name}`"),
            || format!("it counts {} unfinished jobs of {live}", queue.live_jobs),
        );
    }
}

/// Checks that every holder of resources is indexed for preemption, with the right class.
fn check_attempts(state: &State, report: &mut Report) {
    let kept: BTreeSet<_> = state
        .index
        .attempts
        .iter()
        .flat_map(|(class, keys)| {
            keys.iter().map(|key| {
                let sort = (class.basis, class.queue.to_string(), class.priority);
                (key.job.0, key.unit, sort, class.gpus, key.unkept_since.0)
            })
        })
        .collect();
    let mut expected = BTreeSet::new();
    for job in state.jobs.values() {
        for (index, unit) in &job.units {
            let Some(attempt) = &unit.attempt else {
                continue;
            };
            let basis = match (&attempt.stop, &attempt.allocation_basis) {
                (Some(_), _) => BasisKind::Stopping,
                (None, AllocationBasis::Opportunistic) => BasisKind::Opportunistic,
                (None, AllocationBasis::Share) => BasisKind::Share,
                (None, AllocationBasis::Cells(_)) => BasisKind::Cells,
            };
            let own = unit
                .checkpoints
                .iter()
                .filter(|kept| kept.epoch == attempt.epoch);
            let saved = own.map(|kept| kept.committed_at).max();
            let since = attempt.running_at.map_or(TimeMs(u64::MAX), |began| {
                saved.map_or(began, |saved| saved.max(began))
            });
            let gpus = attempt
                .tasks
                .iter()
                .fold(0, |sum, run| sum + run.gpus.len());
            let sort = (basis, job.spec.queue.clone(), job.spec.priority);
            let gpus = u32::try_from(gpus).unwrap_or(u32::MAX);
            expected.insert((job.id, *index, sort, gpus, since));
        }
    }
    let detail = || format!("it has {kept:?}, jobs have {expected:?}");
    report.require(kept == expected, Rule::Unindexed, &"index.attempts", detail);
}

/// Whether a retired queue without live jobs is kept for its children.
fn is_needed(state: &State, name: &str) -> bool {
    let inside = format!("{name}/");
    let retired = state.queues.get(name).is_some_and(|queue| queue.retired);
    !retired || state.queues.keys().any(|other| other.starts_with(&inside))
}
