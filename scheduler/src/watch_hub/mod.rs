//! Watch hub: events to watchers, on every replica; the token of a watch is a revision.
//!
//! One pump reads each event once from the replicated event log as it is applied and queues it to the
//! subscribers, by job. A resumed watch first reads the log up to the pump's position and is then joined to
//! the pump without a gap. Queues are bounded: a watcher that does not keep up is dropped and must resume
//! from the newest revision that it received, here or on any other replica.

mod filter;
mod hub;
mod subscription;

pub use filter::WatchFilter;
pub use hub::{SubscribeError, WatchHub};
pub use subscription::{Subscription, WatchEnd};

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;

    use muster_engine::state::{Compacted, EventGaps, EventLog, State};
    use muster_model::event::{Event, EventKind};
    use muster_model::ids::{JobId, Revision};
    use muster_model::time::TimeMs;
    use tokio::sync::watch;
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn finished(revision: u64, job: u64) -> Arc<[Event]> {
        Arc::from([Event {
            revision: Revision(revision),
            time: TimeMs(revision),
            kind: EventKind::JobPruned { job: JobId(job) },
        }])
    }

    /// A state at `revision` whose revisions after `compacted` have one event each, about jobs 0 and 1 in
    /// turn.
    fn state(compacted: u64, revision: u64) -> State {
        let events = (compacted + 1..=revision).map(|at| (Revision(at), finished(at, at % 2)));
        State {
            revision: Revision(revision),
            events: EventLog::restore(Revision(compacted), EventGaps::default(), events.collect()),
            ..State::default()
        }
    }

    async fn revisions(watch: &mut Subscription, count: usize) -> Vec<u64> {
        let mut seen = Vec::new();
        while seen.len() < count {
            let (revision, events) = watch.next().await.unwrap();
            seen.extend(events.first().map(|_| revision.get()));
        }
        seen
    }

    #[tokio::test]
    async fn a_watch_catches_up_and_continues_without_a_gap() {
        let hub = WatchHub::new(Revision(5), 10, 100);
        let mut all = hub
            .subscribe(|| state(0, 5), Some(Revision(2)), WatchFilter::default())
            .unwrap();
        let filter = WatchFilter {
            jobs: [JobId(1)].into(),
            ..WatchFilter::default()
        };
        let mut one = hub
            .subscribe(|| state(0, 5), Some(Revision(0)), filter)
            .unwrap();
        hub.pump(&state(0, 9)).await;
        assert_eq!(revisions(&mut all, 7).await, vec![3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(revisions(&mut one, 5).await, vec![1, 3, 5, 7, 9]);
    }

    #[tokio::test]
    async fn a_watch_from_a_replica_that_was_ahead_repeats_nothing() {
        let hub = WatchHub::new(Revision(5), 10, 100);
        let mut ahead = hub
            .subscribe(|| state(0, 5), Some(Revision(7)), WatchFilter::default())
            .unwrap();
        hub.pump(&state(0, 9)).await;
        assert_eq!(revisions(&mut ahead, 2).await, vec![8, 9]);
    }

    #[tokio::test]
    async fn a_watch_from_the_maximum_revision_shows_nothing() {
        let hub = WatchHub::new(Revision(5), 10, 100);
        let last = Revision(u64::MAX);
        let mut watch = hub
            .subscribe(|| state(0, 5), Some(last), WatchFilter::default())
            .unwrap();
        let (revision, events) = watch.next().await.unwrap();
        assert_eq!((revision, events.len()), (last, 0));
    }

    #[tokio::test]
    async fn a_start_that_is_compacted_is_refused() {
        let hub = WatchHub::new(Revision(9), 10, 100);
        let gone = hub.subscribe(|| state(4, 9), Some(Revision(3)), WatchFilter::default());
        assert!(matches!(gone, Err(SubscribeError::Compacted(_))));
        let there = hub.subscribe(|| state(4, 9), Some(Revision(4)), WatchFilter::default());
        assert!(there.is_ok());
    }

    #[tokio::test]
    async fn only_a_watch_from_a_dropped_revision_is_refused() {
        let hub = WatchHub::new(Revision(9), 10, 100);
        // Job 1 lost its events up to revision 5; those of job 0 are all there.
        let state = || {
            let losses = EventGaps {
                settled_up_to: Revision(6),
                marks: vec![(Some(JobId(1)), Revision(5))],
            };
            let kept = (1..=9).filter(|at| at % 2 == 0 || *at > 5);
            let events = kept.map(|at| (Revision(at), finished(at, at % 2)));
            State {
                revision: Revision(9),
                events: EventLog::restore(Revision(0), losses, events.collect()),
                ..State::default()
            }
        };
        let watch = |from: u64, jobs: &[u64]| {
            let filter = WatchFilter {
                jobs: jobs.iter().copied().map(JobId).collect(),
                ..WatchFilter::default()
            };
            hub.subscribe(state, Some(Revision(from)), filter)
        };
        for (from, jobs) in [(0, &[1][..]), (4, &[1]), (4, &[0, 1]), (4, &[])] {
            let gone = watch(from, jobs).err();
            let compacted = Revision(5);
            let expected = SubscribeError::Compacted(Compacted { compacted });
            assert_eq!(gone, Some(expected), "after {from}, of {jobs:?}");
        }
        let mut other = watch(0, &[0]).unwrap();
        assert_eq!(revisions(&mut other, 4).await, vec![2, 4, 6, 8]);
        let mut own = watch(5, &[1]).unwrap();
        assert_eq!(revisions(&mut own, 2).await, vec![7, 9]);
        let mut all = watch(5, &[]).unwrap();
        assert_eq!(revisions(&mut all, 4).await, vec![6, 7, 8, 9]);
    }

    #[tokio::test]
    async fn a_slow_watcher_is_dropped_with_the_revision_to_resume_from() {
        let hub = WatchHub::new(Revision(0), 10, 3);
        let mut slow = hub
            .subscribe(|| state(0, 0), None, WatchFilter::default())
            .unwrap();
        hub.pump(&state(0, 9)).await;
        assert_eq!(revisions(&mut slow, 3).await, vec![1, 2, 3]);
        assert_eq!(slow.next().await, Err(WatchEnd::TooSlow));
        assert_eq!(slow.position(), Revision(3));
    }

    #[tokio::test]
    async fn watches_are_limited_and_end_with_the_replica() {
        let hub = WatchHub::new(Revision(0), 1, 3);
        let mut only = hub
            .subscribe(|| state(0, 0), None, WatchFilter::default())
            .unwrap();
        let second = hub.subscribe(|| state(0, 0), None, WatchFilter::default());
        assert_eq!(second.err(), Some(SubscribeError::Full { limit: 1 }));
        let stop = CancellationToken::new();
        stop.cancel();
        let (_sender, applied) = watch::channel(0);
        hub.run(applied, State::default, stop).await;
        assert!(matches!(only.next().await, Ok((_, events)) if events.is_empty()));
        assert_eq!(only.next().await, Err(WatchEnd::Stopped));
    }
}
