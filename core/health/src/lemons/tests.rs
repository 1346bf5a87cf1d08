//! The binomial tail against exact values, and fleets with and without a lemon.

use muster_model::command::Exit;
use muster_model::health::Class;
use muster_model::ids::{HostId, JobId, TaskIndex};
use muster_model::time::{DAY_MS, MINUTE_MS, TimeMs};

use super::*;
use crate::attribution::{self, AttributionOutcome, Ended, History, TaskEnd};
use crate::guard_rails::PoolView;
use crate::rules::RuleSet;
use crate::state::{Circumstances, Excludes, FailedEnd, HealthState, Program};

/// The tail in parts per billion.
fn ppb(trials: u32, failures: u32, rate: Rate) -> u64 {
    let chance = at_least(trials, failures, rate);
    (u128::from(chance) * 1_000_000_000 / u128::from(ONE)) as u64
}

/// Exact values from sums of integer fractions.
#[test]
fn the_binomial_tail_is_exact() {
    for (trials, failures, rate, expected) in EXACT {
        let found = ppb(*trials, *failures, Rate::new(rate.0, rate.1));
        assert!(
            found.abs_diff(*expected) <= 1,
            "{trials} {failures} {rate:?}: {found}, {expected}"
        );
    }
    assert_eq!(at_least(20, 0, Rate::new(1, 100)), ONE);
    let half = || Rate::new(1, 2);
    assert_eq!(ppb(20, 30, half()), ppb(20, 20, half()));
}

#[test]
fn the_binomial_tail_falls_with_failures_and_rises_with_the_rate() {
    for trials in [1, 20, 333, 4_096, 9_999, 1_000_000] {
        let mut before = ONE;
        for failures in (0..trials.min(40)).chain([trials]) {
            let chance = at_least(trials, failures, Rate::new(1, 100));
            assert!(chance <= before, "{trials} {failures}");
            assert!(chance <= at_least(trials, failures, Rate::new(1, 50)));
            before = chance;
        }
    }
    let rate = Rate::new(u64::MAX - 1, u64::MAX);
    assert!(at_least(4_096, 4_096, rate) <= ONE);
    assert_eq!(Rate::new(0, 0).ppm(), 500_000);
}

/// A generator of its own: the same numbers on every machine.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn happens(&mut self, permille: u64) -> bool {
        self.next() % 1_000 < permille
    }
}

/// Number of starts after which each host was found, if it was: host 0 fails a quarter of its tasks, the
/// others the given number per thousand. Every host is evaluated after each of its tasks, as the leader does.
fn found(seed: u64, hosts: usize, starts: u32, usual_permille: u64) -> Vec<Option<u32>> {
    let mut draw = Draw(seed);
    let mut counts = vec![Counts::default(); hosts];
    let mut found = vec![None; hosts];
    for round in 1..=starts {
        let mut failed = Vec::new();
        for (host, count) in counts.iter_mut().enumerate() {
            count.starts += 1;
            let permille = if host == 0 { 250 } else { usual_permille };
            if draw.happens(permille) {
                count.failures += 1;
                failed.push(host);
            }
        }
        let fleet = Fleet::of(counts.iter());
        for host in 0..hosts {
            let is_due = failed.contains(&host) || round == STARTS_MIN;
            if is_due && found[host].is_none() && score(&counts[host], fleet).is_lemon(LEMON_MILLI)
            {
                found[host] = Some(round);
            }
        }
    }
    found
}

#[test]
fn a_lemon_is_found_within_forty_starts_and_its_peers_are_left_alone() {
    let seeds = 40;
    for usual_permille in [2, 5, 10, 20] {
        let (mut missed, mut wrong) = (0, 0);
        for seed in 0..seeds {
            let found = found(seed, 1_000, 40, usual_permille);
            missed += u32::from(found[0].is_none());
            let accused = found[1..].iter().flatten().count() as u32;
            // Fewer than half a percent of 999, in every single run.
            assert!(
                accused <= 4,
                "seed {seed}, {usual_permille} per mille: {accused} peers"
            );
            wrong += accused;
        }
        assert!(
            missed <= 3,
            "{usual_permille} per mille: missed in {missed} of {seeds}"
        );
        assert!(
            wrong <= seeds as u32 / 2,
            "{usual_permille} per mille: {wrong} in {seeds} runs"
        );
    }
}

#[test]
fn good_hosts_stay_good_over_hundreds_of_starts() {
    for usual_permille in [5, 20] {
        let found = found(7, 1_000, 400, usual_permille);
        assert!(found[0].is_some());
        let accused = found[1..].iter().flatten().count();
        assert!(accused <= 4, "{usual_permille} per mille: {accused} peers");
    }
}

/// End of an attempt of one task on a host, with its attribution while nothing else is known.
fn attributed(rules: &RuleSet, exit: &Exit, host: HostId, at: TimeMs) -> AttributionOutcome {
    let task = TaskEnd {
        task: TaskIndex(0),
        host,
        gpus: &[],
        exit: Some(exit),
        has_begun: true,
        ran_ms: MINUTE_MS,
        step: None,
        busy_permille: None,
        held_before_mib: 0,
        crashed_in_nccl: false,
    };
    attribution::attribute(&Ended {
        job: JobId(1),
        user: "ann",
        tasks: &[task],
        stop: None,
        decisive: None,
        gone_host: None,
        unfit: None,
        meaning: None,
        at,
        findings: &[],
        rules,
        history: &History::default(),
    })
}

/// The outputs of a host that breaks programs are those of broken programs.
fn classic_ends() -> Vec<Exit> {
    let signal = |signal| Exit {
        signal: Some(signal),
        ..Exit::default()
    };
    let says = |evidence: &str| Exit {
        code: Some(1),
        evidence: evidence.to_owned(),
        ..Exit::default()
    };
    vec![
        signal(11),
        signal(4),
        says("RuntimeError: CUDA error: an illegal memory access was encountered"),
    ]
}

/// As [`found`], through the health state: every failure is one of the classic ends, and every other one of a
/// peer is certainly a user's error, which counts against no host.
fn found_by_words(seed: u64, hosts: u32, starts: u32, usual_permille: u64) -> Vec<Option<u32>> {
    let rules = RuleSet::shipped().expect("the shipped rules parse");
    let mut draw = Draw(seed);
    let mut health = HealthState::default();
    health.adopt_rules(&rules);
    let mut found = vec![None; hosts as usize];
    let certain = Exit {
        code: Some(1),
        evidence: "KeyError: 'lr'".to_owned(),
        ..Exit::default()
    };
    let ends = classic_ends();
    for round in 1..=starts {
        let at = TimeMs(u64::from(round) * 2 * MINUTE_MS);
        for of in 0..hosts {
            let host = HostId(of);
            health.started(host, at);
            let permille = if of == 0 { 250 } else { 2 * usual_permille };
            if !draw.happens(permille) {
                continue;
            }
            let is_certain = of != 0 && draw.happens(500);
            let drawn = &ends[draw.next() as usize % ends.len()];
            let exit = if is_certain { &certain } else { drawn };
            let attribution = attributed(&rules, exit, host, at);
            let end = FailedEnd {
                at,
                job: JobId(u64::from(round * hosts + of)),
                program: Program::default(),
                hosts: vec![host],
                ..FailedEnd::default()
            };
            let place = Circumstances {
                host,
                gpus: 8,
                pool: "all",
                view: PoolView::default(),
                groups: &[],
                job: None,
                user: None,
                is_ours: false,
                is_idle: true,
                is_host_idle: true,
            };
            health.ended(&rules, &attribution, &end, &place);
        }
        for (host, _) in health.lemons(&rules, at, &Excludes::new()) {
            found[host.0 as usize].get_or_insert(round);
        }
    }
    found
}

#[test]
fn a_lemon_with_ordinary_program_errors_is_found_like_any_other() {
    for exit in classic_ends() {
        let rules = RuleSet::shipped().expect("the shipped rules parse");
        let attribution = attributed(&rules, &exit, HostId(1), TimeMs(0)).attribution;
        assert_eq!(
            (attribution.class, attribution.is_open()),
            (Class::User, true)
        );
    }
    for (seed, usual_permille) in [(1, 2), (2, 5), (3, 10), (4, 20)] {
        let found = found_by_words(seed, 1_000, 40, usual_permille);
        assert!(found[0].is_some(), "seed {seed}: it was missed");
        let accused = found[1..].iter().flatten().count();
        assert!(accused <= 4, "seed {seed}: {accused} peers");
    }
}

#[test]
fn busy_hosts_and_bad_days_make_no_lemons() {
    let fleet = |failures| Fleet {
        starts: 40_000,
        failures,
        median_ppm: failures * 25,
    };
    let busy = Counts {
        starts: 1_000,
        failures: 12,
        ..Counts::default()
    };
    assert_eq!(score(&busy, fleet(400)), Score::default());
    // A day on which a third of everything fails.
    let bad_day = Counts {
        starts: 100,
        failures: 40,
        ..Counts::default()
    };
    assert_eq!(score(&bad_day, fleet(13_000)).milli, 0);
    let few = Counts {
        starts: 19,
        failures: 19,
        ..Counts::default()
    };
    assert_eq!(score(&few, fleet(400)).milli, 0);
}

#[test]
fn features_add_up_and_users_alone_do_not() {
    let fleet = Fleet {
        starts: 10_000,
        failures: 100,
        median_ppm: 10_000,
    };
    let scored = |counts: Counts| {
        let score = score(&counts, fleet);
        let words: Vec<String> = score
            .features
            .iter()
            .map(|(it, milli)| format!("{it} {milli}"))
            .collect();
        (score.milli, score.is_lemon(LEMON_MILLI), words.join(", "))
    };
    let excluded = Counts {
        excludes: 40,
        ..Counts::default()
    };
    assert_eq!(
        scored(excluded),
        (0, false, "excluded_by_users 500".to_owned())
    );
    let shares = Counts {
        single_milli: 2_000,
        shared_milli: 1_400,
        excludes: 2,
        ..Counts::default()
    };
    assert_eq!(
        scored(shares),
        (
            2_200,
            false,
            "single_host_failures 2000, excluded_by_users 200".to_owned()
        )
    );
    let mixed = Counts {
        single_milli: 2_000,
        shared_milli: 1_500,
        codes: 3,
        ..Counts::default()
    };
    assert_eq!(
        scored(mixed),
        (
            5_000,
            true,
            "single_host_failures 2000, shared_failures 1500, xid_codes 1500".to_owned()
        )
    );
    let blocked = Counts {
        blocks_milli: 3_000,
        ..Counts::default()
    };
    assert_eq!(scored(blocked), (3_000, true, "blocks 3000".to_owned()));
}

#[test]
fn evidence_against_a_host_expires() {
    let mut record = HostRecord::default();
    let day = |days: u64| TimeMs(days * DAY_MS);
    for _ in 0..10 {
        record.start(day(0));
    }
    record.fail(day(0), true);
    record.fail(TimeMs(2 * MINUTE_MS), false);
    record.take_back(day(0));
    record.share(day(1), 500);
    record.block(day(8));
    record.code(day(8), 79);
    record.code(day(8), 79);
    let now = record.counts(day(8), 0);
    assert_eq!((now.starts, now.failures, now.codes), (10, 1, 1));
    assert_eq!(
        (now.single_milli, now.shared_milli, now.blocks_milli),
        (500, 250, 1_000)
    );
    let later = record.counts(day(30), 0);
    assert_eq!((later.starts, later.blocks_milli, later.codes), (0, 125, 1));
    assert_eq!(
        record.counts(day(60), 3),
        Counts {
            excludes: 3,
            ..Counts::default()
        }
    );
    for week in 0..100 {
        record.start(day(week * 7));
    }
    assert_eq!(record.counts(day(99 * 7), 0).starts, 4);
}

/// Trials, failures, rate, and the tail in parts per billion.
const EXACT: &[(u32, u32, (u64, u64), u64)] = &[
    (20, 3, (1, 100), 1003576),
    (20, 4, (1, 100), 42620),
    (20, 3, (2, 100), 7068693),
    (40, 4, (1, 100), 685606),
    (40, 10, (1, 4), 560460268),
    (40, 6, (1, 50), 136961),
    (40, 40, (1, 2), 0),
    (1, 1, (1, 3), 333333333),
    (100, 1, (1, 1000), 95207852),
    (300, 12, (1, 50), 18969397),
    (1000, 31, (1, 50), 12647748),
    (2000, 2000, (999, 1000), 135199925),
    (4096, 60, (1, 100), 2969345),
];
