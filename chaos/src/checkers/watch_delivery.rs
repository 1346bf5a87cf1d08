//! Checker for I10: a watcher receives every event once, in order, from whichever replica, or is notified
//! that some are gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::event::Event;
use muster_model::ids::Revision;

/// Comparison of events received by watchers with the events of the log.
#[derive(Clone, Debug, Default)]
pub struct WatchDeliveries {
    /// Events of every revision that has any.
    happened: BTreeMap<Revision, Arc<[Event]>>,
    /// Last revision delivered to each watcher.
    positions: BTreeMap<u32, Revision>,
    found: Vec<DeliveryError>,
}

/// A wrong delivery to a watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// Events were skipped.
    #[error("watcher {watcher} received revision {next}, but never revision {missed}")]
    Missed {
        /// The watcher.
        watcher: u32,
        /// The first skipped revision.
        missed: Revision,
        /// The revision received instead.
        next: Revision,
    },
    /// Events were repeated or delivered out of order.
    #[error("watcher {watcher} received revision {again} after {position}")]
    Repeated {
        /// The watcher.
        watcher: u32,
        /// The repeated revision.
        again: Revision,
        /// Last revision delivered before.
        position: Revision,
    },
    /// Delivered events differ from the log's.
    #[error("watcher {watcher} received wrong events for revision {revision}")]
    Other {
        /// The watcher.
        watcher: u32,
        /// The revision.
        revision: Revision,
    },
    /// The watcher was notified of compacted events that still exist or that it had already received.
    #[error(
        "watcher {watcher} asked for events after revision {asked} and was notified that those up to {reported} are \
         gone, but the replica lacks only those up to {lacked}"
    )]
    NotGone {
        /// The watcher.
        watcher: u32,
        /// Revision after which it asked for events.
        asked: Revision,
        /// Last compacted revision according to the notice.
        reported: Revision,
        /// Newest revision of which the replica dropped an event.
        lacked: Revision,
    },
    /// Deliveries are incomplete although all faults are repaired.
    #[error("watcher {watcher} received events up to revision {position}, {due} was due")]
    Behind {
        /// The watcher.
        watcher: u32,
        /// Last delivered revision.
        position: Revision,
        /// Last revision with events.
        due: Revision,
    },
}

impl WatchDeliveries {
    /// Adds a watcher that starts before the first revision.
    pub fn began(&mut self, watcher: u32) {
        self.positions.insert(watcher, Revision(0));
    }

    /// Records the events of a revision.
    pub fn happened(&mut self, revision: Revision, events: &Arc<[Event]>) {
        self.happened
            .entry(revision)
            .or_insert_with(|| Arc::clone(events));
    }

    /// Checks the delivery of a revision's events to a watcher.
    pub fn delivered(&mut self, watcher: u32, revision: Revision, events: &[Event]) {
        let position = self.position(watcher);
        if revision <= position {
            self.found.push(DeliveryError::Repeated {
                watcher,
                again: revision,
                position,
            });
            return;
        }
        self.look_between(watcher, position, Revision(revision.0 - 1), revision);
        if self
            .happened
            .get(&revision)
            .is_none_or(|known| **known != *events)
        {
            self.found.push(DeliveryError::Other { watcher, revision });
        }
        self.positions.insert(watcher, revision);
    }

    /// Checks a bookmark: no more events up to a revision.
    pub fn bookmark(&mut self, watcher: u32, revision: Revision) {
        let position = self.position(watcher);
        if revision > position {
            self.look_between(watcher, position, revision, revision);
            self.positions.insert(watcher, revision);
        }
    }

    /// Checks a notice that events up to a revision are gone, sent to a watcher that asked for events after
    /// `asked`; the watcher continues behind them. The state of the sending replica must really lack them:
    /// it lacks events up to `lacked`.
    pub fn gone(&mut self, watcher: u32, asked: Revision, reported: Revision, lacked: Revision) {
        if reported <= asked || reported > lacked {
            self.found.push(DeliveryError::NotGone {
                watcher,
                asked,
                reported,
                lacked,
            });
        }
        let position = self.position(watcher).max(reported);
        self.positions.insert(watcher, position);
    }

    /// Returns watchers whose deliveries are incomplete.
    #[must_use]
    pub fn behind(&self) -> Vec<DeliveryError> {
        let due = self.happened.last_key_value().map(|(due, _)| *due);
        let due = due.unwrap_or_default();
        let late = self.positions.iter().filter(|(_, at)| **at < due);
        late.map(|(watcher, position)| DeliveryError::Behind {
            watcher: *watcher,
            position: *position,
            due,
        })
        .collect()
    }

    /// Violations found so far, in order.
    #[must_use]
    pub fn found(&self) -> &[DeliveryError] {
        &self.found
    }

    fn position(&self, watcher: u32) -> Revision {
        self.positions.get(&watcher).copied().unwrap_or_default()
    }

    /// Checks that no events lie between two revisions, after the first and up to the second.
    fn look_between(&mut self, watcher: u32, from: Revision, to: Revision, next: Revision) {
        let after = (
            std::ops::Bound::Excluded(from),
            std::ops::Bound::Included(to),
        );
        if from < to
            && let Some((missed, _)) = self.happened.range(after).next()
        {
            self.found.push(DeliveryError::Missed {
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

    fn watching() -> WatchDeliveries {
        let mut watching = WatchDeliveries::default();
        watching.began(1);
        for revision in [2, 4, 5] {
            watching.happened(Revision(revision), &events(revision));
        }
        watching
    }

    #[test]
    fn every_event_once_is_right() {
        let mut right = watching();
        right.delivered(1, Revision(2), &events(2));
        right.bookmark(1, Revision(3));
        assert_eq!(right.behind().len(), 1);
        right.delivered(1, Revision(4), &events(4));
        right.delivered(1, Revision(5), &events(5));
        right.bookmark(1, Revision(3));
        assert_eq!((right.found(), right.behind().len()), (&[][..], 0));
        // A watcher notified of gone events has not missed them.
        let mut gone = watching();
        gone.gone(1, Revision(0), Revision(4), Revision(4));
        gone.delivered(1, Revision(5), &events(5));
        assert_eq!(gone.found(), []);
    }

    /// A hub that sent such notices freely could skip every event.
    #[test]
    fn a_notice_of_compacted_events_must_be_true() {
        // The replica still has them; they were already delivered; it lacks some, but fewer.
        for (asked, reported, lacked) in [(0, 4, 0), (4, 4, 4), (2, 5, 4)] {
            let mut watching = watching();
            watching.gone(1, Revision(asked), Revision(reported), Revision(lacked));
            assert!(matches!(watching.found(), [DeliveryError::NotGone { .. }]));
        }
        let mut newer = watching();
        newer.gone(1, Revision(2), Revision(4), Revision(5));
        assert_eq!(newer.found(), []);
    }

    #[test]
    fn missing_repeated_and_invented_events_are_reported() {
        let mut missed = watching();
        missed.delivered(1, Revision(4), &events(4));
        assert!(matches!(missed.found(), [DeliveryError::Missed { .. }]));
        let mut passed = watching();
        passed.bookmark(1, Revision(2));
        assert!(matches!(passed.found(), [DeliveryError::Missed { .. }]));
        let mut again = watching();
        again.delivered(1, Revision(2), &events(2));
        again.delivered(1, Revision(2), &events(2));
        assert!(matches!(again.found(), [DeliveryError::Repeated { .. }]));
        let mut other = watching();
        other.delivered(1, Revision(2), &events(9));
        other.delivered(1, Revision(3), &events(3));
        assert!(matches!(
            other.found(),
            [DeliveryError::Other { .. }, DeliveryError::Other { .. }]
        ));
    }
}
