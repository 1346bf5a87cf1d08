//! Comparison of the selected victims with the cheapest of all sets of victims, on small random cases.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::io::Write as _;
use std::sync::Arc;

use muster_engine::rights::lost_work_ms;
use muster_harness::{Cluster, gang, single};
use muster_model::command::{ClaimSpec, Command, GpuHealth};
use muster_model::ids::JobId;
use muster_model::quota::{Guarantee, QueueConfig, QueueTree};
use muster_model::spec::JobSpec;

use super::*;

/// SplitMix64.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn count(&mut self, bound: u64) -> u32 {
        u32::try_from(self.below(bound)).unwrap()
    }
}

const QUEUES: [&str; 3] = ["a", "b", "c"];
/// Maximum number of attempts in a case: no more than those for which all sets are compared.
const ATTEMPTS_MAX: u64 = 8;

/// Queues with guarantees, one of which preempts by priority.
fn configure(cluster: &mut Cluster) {
    let queue = |gpus: u64, preempt_by_priority: bool| QueueConfig {
        guarantee: Guarantee::Amounts(Amounts {
            gpus,
            ..Amounts::default()
        }),
        preempt_by_priority,
        ..QueueConfig::default()
    };
    let configs = [queue(4, false), queue(3, true), queue(0, true)];
    let queues = QUEUES.map(str::to_owned).into_iter().zip(configs);
    cluster.configure(QueueTree {
        queues: queues.collect(),
        history_half_life_ms: None,
        defragment: None,
    });
}

/// A job with random queue (half the jobs go to the queue that preempts by priority alone), size and
/// priority; a task has at most `gpus_max` GPUs.
fn draw_job(draw: &mut Draw, gpus_max: u64) -> JobSpec {
    let mut spec = match draw.below(3) {
        0 => gang("gang", 2 + draw.count(2), 1 + draw.count(gpus_max / 2)),
        _ => single("one", 1, 1 + draw.count(gpus_max)),
    };
    let queue = usize::try_from(draw.below(4)).unwrap();
    QUEUES[queue.min(2)].clone_into(&mut spec.queue);
    spec.priority = i32::try_from(draw.below(3)).unwrap();
    spec
}

/// Two or three hosts with attempts of different ages, and one more waiting job.
fn draw_case(seed: u64) -> (Cluster, JobId) {
    let mut draw = Draw(seed);
    let mut cluster = Cluster::with_hosts(2 + draw.count(2), 6);
    cluster.observer.enabled = false;
    configure(&mut cluster);
    for _ in 0..=draw.below(ATTEMPTS_MAX) {
        let mut spec = draw_job(&mut draw, 4);
        spec.scheduling.opportunistic = draw.below(6) == 0;
        let job = cluster.submit(spec);
        if let Some(place) = cluster.first_fit(job, UnitIndex(0)) {
            cluster.apply(&place);
            cluster.start_all(job);
        }
        cluster.wait(1_000 * (1 + draw.below(60)));
    }
    let mut spec = draw_job(&mut draw, 6);
    spec.priority += 2;
    let job = cluster.submit(spec);
    (cluster, job)
}

/// The cheapest of all sets, found by trying every one.
fn brute_force(capacity: &Capacity<'_>, claimant: Claimant<'_>) -> Option<Cost> {
    let state = capacity.state();
    let keys = state.index.attempts.values().flatten();
    let running: Vec<Running<'_>> = keys
        .filter_map(|key| Running::of(state, key.unit_id()))
        .collect();
    let mut best: Option<Cost> = None;
    for set in 1u32..(1 << running.len()) {
        let victims: Vec<&Running<'_>> = running
            .iter()
            .enumerate()
            .filter(|(position, _)| set & (1 << position) != 0)
            .map(|(_, running)| running)
            .collect();
        let named: Vec<Victim> = victims.iter().map(|victim| victim.as_victim()).collect();
        let mut fork = capacity.free_attempts(&named);
        let Ok(placed) = unit::place_unborrowed(&mut fork, claimant.job, claimant.unit) else {
            continue;
        };
        let amounts = amounts_of(&state.hosts, &claimant.job.spec, &placed.tasks);
        let subjects = victims.iter().map(|victim| subject(victim)).collect();
        if rights(state, claimant, &amounts)
            .take_all(subjects)
            .is_err()
        {
            continue;
        }
        let cost = victims.iter().fold(Cost::default(), |sum, victim| {
            let lost_ms = lost_work_ms(victim.unit, victim.attempt, claimant.now);
            let opportunistic = victim.attempt.allocation_basis == AllocationBasis::Opportunistic;
            sum.plus(Cost {
                firm_ms: if opportunistic { 0 } else { lost_ms },
                opportunistic_ms: if opportunistic { lost_ms } else { 0 },
                priority: victim.job.spec.priority,
                victims: 1,
            })
        });
        best = Some(best.map_or(cost, |best| best.min(cost)));
    }
    best
}

/// Checks a case if its last job does not fit at once; passes the state, the job, and the cost by brute
/// force.
fn compare(seed: u64, look: impl FnOnce(&Capacity<'_>, Claimant<'_>, Option<Cost>)) {
    let (mut cluster, job) = draw_case(seed);
    cluster.state.time = cluster.now;
    let record = cluster.state.job(job).unwrap();
    let claimant = Claimant {
        job: record,
        unit: UnitIndex(0),
        allocation_basis: &AllocationBasis::Share,
        now: cluster.now,
    };
    let capacity = Capacity::new(&cluster.state);
    if unit::place_unborrowed(&mut capacity.clone(), record, UnitIndex(0)).is_err() {
        look(&capacity, claimant, brute_force(&capacity, claimant));
    }
}

#[test]
fn with_few_candidates_the_cheapest_victims_are_found() {
    let mut found = 0;
    for seed in 0..1_500 {
        compare(seed, |capacity, claimant, best| {
            let allowance = Allowance::new(capacity.state());
            let proposed = propose(capacity, &allowance, claimant).found;
            let cost = proposed.as_ref().map(|proposed| proposed.cost);
            assert_eq!(cost, best, "seed {seed}");
            let Some(proposed) = proposed else { return };
            found += 1;
            let claim = Command::Claim(ClaimSpec {
                leader: capacity.state().leadership.epoch,
                job: claimant.job.id,
                unit: claimant.unit,
                tasks: Arc::from(proposed.tasks),
                basis: AllocationBasis::Share,
                victims: proposed.victims,
                supersedes: Vec::new(),
                expected_at: Some(proposed.expected_at),
                moving: None,
            });
            let mut state = capacity.state().clone();
            let applied = muster_engine::apply::apply(&mut state, claimant.now, &claim);
            assert!(applied.result.is_ok(), "seed {seed}: {applied:?}");
            assert_eq!(muster_engine::audit::audit(&state), [], "seed {seed}");
        });
    }
    assert!(found > 200, "only {found} cases are meaningful");
}

/// Eight tasks with one GPU each occupy a host, and a unit requests more than all of them hold.
#[test]
fn no_victim_set_is_tried_if_all_victims_together_are_not_enough() {
    let mut cluster = Cluster::with_hosts(1, 8);
    cluster.observer.enabled = false;
    configure(&mut cluster);
    let mut old = single("old", 8, 1);
    old.queue = "b".to_owned();
    let old = cluster.submit(old);
    assert_eq!(cluster.place_all(old), 8);
    cluster.start_all(old);
    let mut wide = single("wide", 1, 4);
    wide.queue = "b".to_owned();
    wide.priority = 5;
    wide.groups[0].resources.memory_mib = muster_model::limits::MEMORY_MIB_PER_TASK_MAX;
    let job = cluster.submit(wide);
    cluster.state.time = cluster.now;
    let claimant = Claimant {
        job: cluster.state.job(job).unwrap(),
        unit: UnitIndex(0),
        allocation_basis: &AllocationBasis::Share,
        now: cluster.now,
    };
    let capacity = Capacity::new(&cluster.state);
    let amounts = amounts::by_model(&capacity, claimant.job, claimant.unit).remove(0);
    let rights = rights(capacity.state(), claimant, &amounts);
    let candidates = Pool::open(&capacity, claimant, &rights)
        .gather(usize::MAX)
        .candidates;
    assert_eq!(candidates.len(), 8);
    let coming = coming_free(&capacity);
    let search = Search {
        coming: &coming,
        allowance: None,
        claimant,
        amounts: &amounts,
    };
    let items = candidates.iter().map(|candidate| exact::Item {
        candidate,
        gpus: candidate.running.attempt.gpus(),
    });
    let mut exact = exact::Exact::new(&search, coming.clone(), items.collect(), 4);
    exact.run();
    assert!(exact.best.is_none());
    assert_eq!(exact.tries, exact::TRIES_MAX - 1);
}

/// A task ended, and its GPU is faulty by `signal`. Its unit runs on another of the host's eight GPUs, and
/// a unit with a right to preempt it requests all seven: whether the attempt is a victim.
fn is_victim_beside(signal: &str) -> bool {
    let mut cluster = Cluster::with_hosts(1, 8);
    configure(&mut cluster);
    let mut old = single("old", 1, 1);
    old.queue = "b".to_owned();
    let old = cluster.submit(old);
    assert_eq!(cluster.place_all(old), 1);
    cluster.start_all(old);
    cluster.leave_unfit(old, signal);
    let mut urgent = single("urgent", 1, 7);
    urgent.queue = "b".to_owned();
    urgent.priority = 5;
    let job = cluster.submit(urgent);
    cluster.state.time = cluster.now;
    let claimant = Claimant {
        job: cluster.state.job(job).unwrap(),
        unit: UnitIndex(0),
        allocation_basis: &AllocationBasis::Share,
        now: cluster.now,
    };
    let capacity = Capacity::new(&cluster.state);
    let allowance = Allowance::new(&cluster.state);
    propose(&capacity, &allowance, claimant).found.is_some()
}

#[test]
fn an_attempt_with_an_unkillable_task_is_not_preempted() {
    assert!(is_victim_beside("xid-48"));
    assert!(!is_victim_beside(GpuHealth::TASK_STUCK));
}

/// Maximum misses of the orders per 1,000 cases with victims: cases without a result, and cases with a more
/// expensive one.
const MISSED_PER_1000_MAX: u64 = 10;
const DEARER_PER_1000_MAX: u64 = 30;
/// Maximum ratio of work lost along the orders to the minimum, in thousandths.
const LOST_PER_1000_MAX: u64 = 1_020;

#[test]
#[expect(clippy::disallowed_methods, reason = "the test prints its figures")]
fn orders_alone_stay_within_a_bound_of_the_cheapest_victims() {
    let (mut cases, mut missed, mut dearer) = (0u64, 0u64, 0u64);
    let (mut lost_ms, mut least_ms) = (0u64, 0u64);
    for seed in 10_000..11_500 {
        compare(seed, |capacity, claimant, best| {
            let Some(best) = best else { return };
            cases += 1;
            let amounts = amounts::by_model(capacity, claimant.job, claimant.unit).remove(0);
            let rights = rights(capacity.state(), claimant, &amounts);
            let mut pool = Pool::open(capacity, claimant, &rights);
            let coming = coming_free(capacity);
            let search = Search {
                coming: &coming,
                allowance: None,
                claimant,
                amounts: &amounts,
            };
            match search.along_orders(&pool.gather(usize::MAX).candidates) {
                Some(found) => {
                    assert!(found.cost >= best, "seed {seed}: cheaper than the cheapest");
                    dearer += u64::from(found.cost > best);
                    lost_ms += found.cost.firm_ms + found.cost.opportunistic_ms;
                    least_ms += best.firm_ms + best.opportunistic_ms;
                }
                None => missed += 1,
            }
        });
    }
    writeln!(
        std::io::stderr(),
        "{cases} cases: {missed} missed, {dearer} dearer, {lost_ms} of {least_ms} ms lost"
    )
    .unwrap();
    assert!(cases > 200, "only {cases} cases are meaningful");
    assert!(missed * 1_000 <= cases * MISSED_PER_1000_MAX);
    assert!(dearer * 1_000 <= cases * DEARER_PER_1000_MAX);
    assert!(lost_ms * 1_000 <= least_ms * LOST_PER_1000_MAX);
}
