//! I10: a watcher is told every event once, in order, whichever replica tells it, or that some are gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::event::Event;
use muster_model::ids::Revision;

/// What watchers were told, held against what happened.
#[derive(Clone, Debug, Default)]
pub struct Watching {
    /// The events of every revision that has any.
    happened: BTreeMap<Revision, Arc<[Event]>>,
    /// Up to where each watcher was told.
    positions: BTreeMap<u32, Revision>,
    found: Vec<WatchGap>,
}

/// A watcher was told wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchGap {
    /// Events were left out.
    #[error("watcher {watcher} was never told of revision {missed}, but of {next}")]
    Missed {
        /// Who.
        watcher: u32,
        /// The first revision that was left out.
        missed: Revision,
        /// What it was told instead.
        next: Revision,
    },
    /// Events came again, or too late.
    #[error("watcher {watcher} was told of revision {again} after {position}")]
    Repeated {
        /// Who.
        watcher: u32,
        /// What it was told.
        again: Revision,
        /// Up to where it had been told before.
        position: Revision,
    },
    /// Other events than there were.
    #[error("watcher {watcher} was told otherwise of revision {revision}")]
    Other {
        /// Who.
        watcher: u32,
        /// Of which revision.
        revision: Revision,
    },
    /// It was told that events are gone, and they are not, or it had heard them.
    #[error(
        "watcher {watcher} asked for what came after revision {asked} and was told that events up to {told} are gone, of which the replica lacks those up to {lacked}"
    )]
    NotGone {
        /// Who.
        watcher: u32,
        /// After which revision it asked.
        asked: Revision,
        /// Up to where events are gone, as it was told.
        told: Revision,
        /// The newest revision of which that replica dropped an event.
        lacked: Revision,
    },
    /// It was not told of everything although nothing is broken any more.
    #[error("watcher {watcher} was told up to revision {position}, {due} was due")]
    Behind {
        /// Who.
        watcher: u32,
        /// Up to where it was told.
        position: Revision,
        /// The last revision with events.
        due: Revision,
    },
}

impl Watching {
    /// A watcher begins, before everything.
    pub fn began(&mut self, watcher: u32) {
        self.positions.insert(watcher, Revision(0));
    }

    /// A revision has these events.
    pub fn happened(&mut self, revision: Revision, events: &Arc<[Event]>) {
        self.happened
            .entry(revision)
            .or_insert_with(|| Arc::clone(events));
    }

    /// A watcher is told of the events of a revision.
    pub fn told(&mut self, watcher: u32, revision: Revision, events: &[Event]) {
        let position = self.position(watcher);
        if revision <= position {
            self.found.push(WatchGap::Repeated {
                watcher,
                again: revision,
                position,
            });
            return;
        }
        self.look_between(watcher, (position, Revision(revision.0 - 1)), revision);
        if self
            .happened
            .get(&revision)
            .is_none_or(|known| **known != *events)
        {
            self.found.push(WatchGap::Other { watcher, revision });
        }
        self.positions.insert(watcher, revision);
    }

    /// A watcher is told that nothing more happened up to a revision.
    pub fn bookmark(&mut self, watcher: u32, revision: Revision) {
        let position = self.position(watcher);
        if revision > position {
            self.look_between(watcher, (position, revision), revision);
            self.positions.insert(watcher, revision);
        }
    }

    /// A watcher that asked for what came after a revision is told that the events up to another one are gone: it goes on behind
    /// them. What it is told must be so in the state of the replica that says it, which lacks events up to `lacked`.
    pub fn gone(&mut self, watcher: u32, asked: Revision, (told, lacked): (Revision, Revision)) {
        if told <= asked || told > lacked {
            self.found.push(WatchGap::NotGone {
                watcher,
                asked,
                told,
                lacked,
            });
        }
        let position = self.position(watcher).max(told);
        self.positions.insert(watcher, position);
    }

    /// Watchers that were not told of everything.
    #[must_use]
    pub fn behind(&self) -> Vec<WatchGap> {
        let due = self.happened.last_key_value().map(|(due, _)| *due);
        let due = due.unwrap_or_default();
        let late = self.positions.iter().filter(|(_, at)| **at < due);
        late.map(|(watcher, position)| WatchGap::Behind {
            watcher: *watcher,
            position: *position,
            due,
        })
        .collect()
    }

    /// Everything that must not have happened, in order.
    #[must_use]
    pub fn found(&self) -> &[WatchGap] {
        &self.found
    }

    fn position(&self, watcher: u32) -> Revision {
        self.positions.get(&watcher).copied().unwrap_or_default()
    }

    /// Nothing may have happened after the first of two revisions, up to the second.
    fn look_between(&mut self, watcher: u32, (from, to): (Revision, Revision), next: Revision) {
        let after = (
            std::ops::Bound::Excluded(from),
            std::ops::Bound::Included(to),
        );
        if from < to
            && let Some((missed, _)) = self.happened.range(after).next()
        {
            self.found.push(WatchGap::Missed {
                watcher,
                missed: *missed,
                next,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_model::event::EventKind;
    use muster_model::ids::JobId;
    use muster_model::time::TimeMs;

    use super::*;

    fn events(revision: u64) -> Arc<[Event]> {
        Arc::from([Event {
            revision: Revision(revision),
            time: TimeMs(revision),
            kind: EventKind::JobPruned {
                job: JobId(revision),
            },
        }])
    }

    fn watching() -> Watching {
        let mut watching = Watching::default();
        watching.began(1);
        for revision in [2, 4, 5] {
            watching.happened(Revision(revision), &events(revision));
        }
        watching
    }

    #[test]
    fn every_event_once_is_right() {
        let mut right = watching();
        right.told(1, Revision(2), &events(2));
        right.bookmark(1, Revision(3));
        assert_eq!(right.behind().len(), 1);
        right.told(1, Revision(4), &events(4));
        right.told(1, Revision(5), &events(5));
        right.bookmark(1, Revision(3));
        assert_eq!((right.found(), right.behind().len()), (&[][..], 0));
        // Who is told that events are gone misses none of them.
        let mut gone = watching();
        gone.gone(1, Revision(0), (Revision(4), Revision(4)));
        gone.told(1, Revision(5), &events(5));
        assert_eq!(gone.found(), []);
    }

    /// A hub that says so to whoever it likes spares itself every event.
    #[test]
    fn what_is_said_to_be_gone_must_be_gone() {
        // The replica has them; they were heard before; it lacks some, but fewer.
        for (asked, told, lacked) in [(0, 4, 0), (4, 4, 4), (2, 5, 4)] {
            let mut watching = watching();
            let (asked, of_hub) = (Revision(asked), (Revision(told), Revision(lacked)));
            watching.gone(1, asked, of_hub);
            assert!(matches!(watching.found(), [WatchGap::NotGone { .. }]));
        }
        let mut newer = watching();
        newer.gone(1, Revision(2), (Revision(4), Revision(5)));
        assert_eq!(newer.found(), []);
    }

    #[test]
    fn what_is_missing_doubled_or_made_up_is_noticed() {
        let mut missed = watching();
        missed.told(1, Revision(4), &events(4));
        assert!(matches!(missed.found(), [WatchGap::Missed { .. }]));
        let mut passed = watching();
        passed.bookmark(1, Revision(2));
        assert!(matches!(passed.found(), [WatchGap::Missed { .. }]));
        let mut again = watching();
        again.told(1, Revision(2), &events(2));
        again.told(1, Revision(2), &events(2));
        assert!(matches!(again.found(), [WatchGap::Repeated { .. }]));
        let mut other = watching();
        other.told(1, Revision(2), &events(9));
        other.told(1, Revision(3), &events(3));
        assert!(matches!(
            other.found(),
            [WatchGap::Other { .. }, WatchGap::Other { .. }]
        ));
    }
}
