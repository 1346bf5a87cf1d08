//! Tests of event retention: what is dropped, what callers are answered, and that a restored log continues
//! identically.

use std::collections::BTreeMap;

use muster_model::event::EventKind;
use muster_model::time::TimeMs;

use super::*;

const SMALL: RetentionLimits = RetentionLimits {
    kept: 20,
    recent: 8,
    share: 3,
    marks: 4,
};

fn log() -> EventLog {
    EventLog {
        bounds: SMALL,
        ..EventLog::default()
    }
}

/// Returns one event for each of these owners; 0 is the cluster.
fn events(revision: u64, owners: &[u64]) -> Arc<[Event]> {
    let events = owners.iter().map(|owner| Event {
        revision: Revision(revision),
        time: TimeMs(revision),
        kind: match owner {
            0 => EventKind::TopologySet {
                author: "grace".to_owned(),
            },
            job => EventKind::JobEligible { job: JobId(*job) },
        },
    });
    events.collect()
}

fn kept(log: &EventLog, owner: Owner) -> Vec<u64> {
    let all = log.iter().flat_map(|(_, events)| events.iter());
    let own = all.filter(|event| event.kind.job() == owner);
    own.map(|event| event.revision.get()).collect()
}

fn asked(log: &EventLog, from: u64, jobs: &[u64]) -> Result<(), u64> {
    let jobs = jobs.iter().copied().map(JobId).collect();
    let answer = log.require_after(Revision(from), &jobs);
    answer.map_err(|gone| gone.compacted.get())
}

#[test]
fn a_huge_array_loses_its_own_oldest_events_and_no_others() {
    let mut log = log();
    for revision in 1..=3 {
        log.push(Revision(revision), events(revision, &[1]));
    }
    log.push(Revision(4), events(4, &[0, 2]));
    for revision in 5..=100 {
        log.push(Revision(revision), events(revision, &[5]));
    }
    assert_eq!(log.len(), SMALL.kept);
    assert_eq!(kept(&log, Some(JobId(1))), [1, 2, 3]);
    assert_eq!(kept(&log, Some(JobId(2))), [4]);
    assert_eq!(kept(&log, None), [4]);
    assert_eq!(kept(&log, Some(JobId(5))), (86..=100).collect::<Vec<_>>());

    // Only a reader of dropped events is refused, with the exact last dropped revision.
    assert_eq!(asked(&log, 0, &[1]), Ok(()));
    assert_eq!(asked(&log, 0, &[1, 2]), Ok(()));
    assert_eq!(asked(&log, 4, &[5]), Err(85));
    assert_eq!(asked(&log, 84, &[1, 5]), Err(85));
    assert_eq!(asked(&log, 85, &[5]), Ok(()));
    assert_eq!(asked(&log, 0, &[]), Err(85));
    assert_eq!(asked(&log, 84, &[]), Err(85));
    assert_eq!(asked(&log, 85, &[]), Ok(()));
    assert!(log.after(Revision(84)).is_err());
    assert_eq!(log.floor(), Revision(0));
}

#[test]
fn the_newest_events_are_kept_regardless_of_owner() {
    let mut log = log();
    for revision in 1..=12 {
        // Every job has one event.
        let job = 3 * revision;
        let pushed = events(revision, &[job, job + 1, job + 2]);
        log.push(Revision(revision), pushed);
    }
    let newest: Vec<u64> = log.iter().map(|(revision, _)| revision.get()).collect();
    assert!(newest.ends_with(&[11, 12]), "{newest:?}");
    // No owner has more than its share of the older events: the oldest are dropped.
    assert_eq!(log.len(), 18);
    assert_eq!(log.floor(), Revision(6));
    assert_eq!(log.losses(), EventGaps::default());
}

#[test]
fn one_revision_over_all_limits_is_kept_whole_as_long_as_it_is_the_newest() {
    let mut log = log();
    log.push(Revision(1), events(1, &[1]));
    log.push(Revision(2), events(2, &[2; 50]));
    assert_eq!(log.len(), 50);
    log.push(Revision(3), events(3, &[3]));
    assert_eq!(kept(&log, Some(JobId(2))), Vec::<u64>::new());
    assert_eq!(asked(&log, 1, &[2]), Err(2));
    assert!(log.is_as_restored());
}

/// Deterministic pseudo-random number below a bound.
fn drawn(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*seed >> 33) % below
}

#[test]
fn gaps_are_reported_and_a_restored_log_stays_equal_to_the_original() {
    for seed in 1..=40 {
        let mut draw = seed;
        let mut log = log();
        let mut restored = log.clone();
        // All events ever pushed, by owner.
        let mut pushed: BTreeMap<Owner, Vec<u64>> = BTreeMap::new();
        for revision in 1..=200 {
            let greedy = drawn(&mut draw, 3) == 0;
            let count = drawn(&mut draw, 4) + if greedy { drawn(&mut draw, 12) } else { 0 };
            let owners: Vec<u64> = (0..count)
                .map(|_| if greedy { 1 } else { drawn(&mut draw, 9) })
                .filter(|owner| *owner <= revision)
                .collect();
            for owner in &owners {
                let owner = Some(JobId(*owner)).filter(|job| job.get() > 0);
                pushed.entry(owner).or_default().push(revision);
            }
            log.push(Revision(revision), events(revision, &owners));
            restored.push(Revision(revision), events(revision, &owners));
            if drawn(&mut draw, 5) == 0 {
                let revisions = restored.iter().map(|(at, it)| (at, Arc::clone(it)));
                let (floor, losses) = (restored.floor(), restored.losses());
                restored = EventLog::restored(SMALL, floor, losses, revisions.collect());
            }
            assert!(log.iter().eq(restored.iter()), "seed {seed}, {revision}");
            assert_eq!(log.losses(), restored.losses(), "seed {seed}, {revision}");
            assert_eq!(log.floor(), restored.floor(), "seed {seed}, {revision}");
            check(&log, &pushed);
        }
    }
}

/// Every reader of missing events is refused; a reader refused although nothing is missing asked from below
/// the floor.
fn check(log: &EventLog, pushed: &BTreeMap<Owner, Vec<u64>>) {
    let newest = log.newest().map_or(0, Revision::get);
    assert!(
        log.len()
            <= SMALL
                .kept
                .max(log.iter().last().map_or(0, |(_, it)| it.len()))
    );
    let mut lost_by_any = 0;
    for (owner, pushed) in pushed {
        let kept = kept(log, *owner);
        assert!(pushed.ends_with(&kept), "only the oldest events are lost");
        let lost = pushed.len() - kept.len();
        let newest_lost = pushed[..lost].last().copied().unwrap_or(0);
        lost_by_any = lost_by_any.max(newest_lost);
        let Some(job) = owner else { continue };
        for from in 0..=newest {
            let is_missing = newest_lost > from;
            let answer = asked(log, from, &[job.get()]);
            assert!(answer.is_err() || !is_missing, "unreported gap");
            let is_old = job.get() <= log.floor().get() && from < log.floor().get();
            assert!(
                answer.is_ok() || is_missing || is_old,
                "refused although nothing is missing"
            );
        }
    }
    assert_eq!(
        log.compacted().get().max(lost_by_any),
        log.compacted().get()
    );
}
