//! Checker for I10: every watcher receives every event of every revision once, in order, those of one
//! revision together; or is notified of compacted ones.

use std::collections::BTreeMap;

use muster_model::ids::Revision;
use muster_proto::v1;

use crate::run::checkers::{Invariant, Violation};
use crate::run::load::{Gap, WatchedEvents};
use crate::run::replay::ReplayedLog;

/// Events of every revision that has any.
type Expected<'a> = BTreeMap<Revision, &'a Vec<v1::Event>>;

/// Checks the received events until `last`, up to which every watcher was awaited.
pub(in crate::run) fn judge(
    watched: &[WatchedEvents],
    truth: &ReplayedLog,
    last: Revision,
) -> Vec<Violation> {
    let expected = expected(watched, truth);
    let due = expected.range(..=last).next_back();
    let due = due.map_or(Revision(0), |(revision, _)| *revision);
    watched
        .iter()
        .flat_map(|one| {
            of_one(one, &expected, due)
                .into_iter()
                .chain(of_gaps(one, truth))
        })
        .map(|text| Violation {
            invariant: Invariant::Watch,
            text,
        })
        .collect()
}

/// Expected events from the log; for its compacted part, the first watcher's, so that at least all watchers
/// must agree.
fn expected<'a>(watched: &'a [WatchedEvents], truth: &'a ReplayedLog) -> Expected<'a> {
    let first = watched.first().into_iter().flat_map(|it| &it.deliveries);
    let forgotten = first.filter(|it| it.revision <= truth.forgotten);
    let forgotten = forgotten.map(|it| (it.revision, &it.events));
    let known = truth
        .events
        .iter()
        .map(|(revision, events)| (*revision, events));
    forgotten.chain(known).collect()
}

/// Gaps reported to a watcher although the log retains the events: the limit is above what a run produces
/// while a watcher is cut off. For an external cluster, whose log cannot be read, the notice is accepted.
fn of_gaps(watched: &WatchedEvents, truth: &ReplayedLog) -> Vec<String> {
    let forgotten = truth.forgotten;
    let wrong = watched.gaps.iter().filter(|it| it.until > forgotten);
    let texts = wrong.map(|gap| {
        let (at, Gap { after, until }) = (&watched.at, gap);
        format!(
            "the watcher at {at} was notified that events after {after} and up to {until} are forgotten, \
             but only those up to {forgotten} are"
        )
    });
    texts.collect()
}

/// A revision whose events no watcher received because all were notified that they are forgotten.
pub(in crate::run) fn missed_by_all(watched: &[WatchedEvents]) -> Option<Revision> {
    // Where the gaps of all of them overlap, the smallest of their ends lies in each.
    let mut ends = watched.iter().flat_map(|it| &it.gaps).map(|gap| gap.until);
    let misses = |one: &WatchedEvents, revision| one.gaps.iter().any(|gap| gap.holds(revision));
    ends.find(|end| watched.iter().all(|one| misses(one, *end)))
}

fn of_one(watched: &WatchedEvents, expected: &Expected<'_>, due: Revision) -> Vec<String> {
    let at = &watched.at;
    let mut found = Vec::new();
    if let Some(why) = &watched.ended {
        found.push(format!("the watcher at {at} gave up: {why}"));
    }
    if watched.position < due {
        let position = watched.position;
        found.push(format!(
            "the watcher at {at} received events up to {position}, {due} was due"
        ));
    }
    let pairs = watched
        .deliveries
        .iter()
        .zip(watched.deliveries.iter().skip(1));
    for (before, after) in pairs.filter(|(before, after)| before.revision >= after.revision) {
        let (first, second) = (before.revision, after.revision);
        found.push(format!(
            "the watcher at {at} received revision {second} after {first}"
        ));
    }
    let is_gone = |revision: Revision| watched.gaps.iter().any(|gap| gap.holds(revision));
    let demanded = expected.iter().filter(|(at, _)| !is_gone(**at));
    let mut expected = demanded.peekable();
    for delivery in &watched.deliveries {
        let revision = delivery.revision;
        while let Some((missed, _)) = expected.next_if(|(at, _)| **at < revision) {
            found.push(format!(
                "the watcher at {at} never received revision {missed}"
            ));
        }
        match expected.next_if(|(at, _)| **at == revision) {
            Some((_, events)) if **events == delivery.events => {}
            Some(_) => found.push(format!(
                "the watcher at {at} received wrong events for {revision}"
            )),
            None => found.push(format!(
                "the watcher at {at} received events of {revision}, which has none"
            )),
        }
    }
    // Events after the awaited revision are no gap, unless a bookmark of the cluster covered them.
    for (missed, _) in expected.filter(|(at, _)| **at <= watched.position) {
        found.push(format!(
            "the watcher at {at} never received revision {missed}"
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use muster_model::event::EventKind;
    use muster_model::ids::JobId;

    use super::*;
    use crate::run::load::Delivery;

    fn event(job: u64) -> v1::Event {
        v1::Event::from(&EventKind::JobPruned { job: JobId(job) })
    }

    fn truth() -> ReplayedLog {
        let events = [2, 4, 5].map(|revision| (Revision(revision), vec![event(revision)]));
        ReplayedLog {
            events: events.into(),
            ..ReplayedLog::default()
        }
    }

    fn watched(revisions: &[u64]) -> WatchedEvents {
        let deliveries = revisions.iter().map(|revision| Delivery {
            revision: Revision(*revision),
            events: vec![event(*revision)],
            at_us: 0,
        });
        WatchedEvents {
            deliveries: deliveries.collect(),
            position: Revision(revisions.last().copied().unwrap_or(0)),
            ..WatchedEvents::default()
        }
    }

    #[test]
    fn missing_repeated_and_invented_events_are_reported() {
        let truth = truth();
        let count =
            |watched: &WatchedEvents| of_one(watched, &expected(&[], &truth), Revision(4)).len();
        assert_eq!(count(&watched(&[2, 4, 5])), 0);
        // The last one came after the watchers had been awaited.
        assert_eq!(count(&watched(&[2, 4])), 0);
        assert_eq!(count(&watched(&[2, 5])), 1);
        assert_eq!(count(&watched(&[2, 3, 4, 5])), 1);
        assert!(count(&watched(&[2, 4, 4, 5])) > 0);
        assert!(count(&watched(&[4, 2, 5])) > 0);
        let mut ahead = watched(&[2, 4]);
        ahead.position = Revision(5);
        assert_eq!(count(&ahead), 1);
        // For the compacted part, all received the same.
        let short = ReplayedLog {
            forgotten: Revision(4),
            events: [(Revision(5), vec![event(5)])].into(),
            ..ReplayedLog::default()
        };
        let all = |second: &[u64]| {
            judge(&[watched(&[2, 4, 5]), watched(second)], &short, Revision(5)).len()
        };
        assert_eq!((all(&[2, 4, 5]), all(&[4, 5])), (0, 1));
        // No events at all, or a stalled stream.
        assert_eq!((count(&watched(&[])), count(&watched(&[2]))), (1, 1));
        let mut other = watched(&[2, 4, 5]);
        other.deliveries[1].events = vec![event(9)];
        assert_eq!(count(&other), 1);
    }

    #[test]
    fn a_reported_gap_is_accepted_only_where_the_log_has_forgotten_the_events() {
        let with_gap = |until| WatchedEvents {
            gaps: vec![Gap {
                after: Revision(2),
                until: Revision(until),
            }],
            ..watched(&[2, 5])
        };
        let short = ReplayedLog {
            forgotten: Revision(4),
            ..truth()
        };
        let count =
            |one: WatchedEvents, truth: &ReplayedLog| judge(&[one], truth, Revision(5)).len();
        assert_eq!(count(with_gap(4), &short), 0);
        // The log retains it; or it lies before the reported gap.
        assert_eq!(count(with_gap(4), &truth()), 1);
        assert_eq!(count(with_gap(3), &short), 1);
        // An event missed by one watcher may have reached another.
        assert_eq!(missed_by_all(&[with_gap(4), watched(&[2, 4, 5])]), None);
        assert_eq!(
            missed_by_all(&[with_gap(4), with_gap(3)]),
            Some(Revision(3))
        );
    }
}
