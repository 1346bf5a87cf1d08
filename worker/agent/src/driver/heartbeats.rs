//! Schedule of a session's heartbeats, and detection of a leader that does not answer.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_backoff::jitter;
use muster_model::health::Component;
use muster_model::heartbeat::Heartbeat;
use muster_model::ids::HostId;
use muster_model::time::MonotonicMs;
use muster_model::timings::Timings;
use tokio::time::Instant;

use crate::limits::{
    HEARTBEATS_MEASURED_MAX, HEARTBEATS_PER_STATUS, STATUS_PAUSE, STATUS_PAUSE_MAX,
    STATUS_PAUSE_TASKS,
};
use crate::metrics;

/// The heartbeats of one session.
#[derive(Debug)]
pub(super) struct Heartbeats {
    timings: Timings,
    /// Heartbeat period in milliseconds, as last requested by the leader.
    period_ms: u64,
    due: Instant,
    /// Time of the last heartbeat with the whole state.
    status_sent: Option<Instant>,
    sequence: u64,
    /// Heartbeats until the next one carries the whole state although nothing changed.
    until_status: u64,
    sent: BTreeMap<u64, MonotonicMs>,
    answered_at: MonotonicMs,
}

impl Heartbeats {
    pub(super) fn new(timings: Timings, now: MonotonicMs) -> Self {
        Self {
            timings,
            period_ms: timings.heartbeat_ms,
            due: Instant::now(),
            status_sent: None,
            sequence: 0,
            until_status: 0,
            sent: BTreeMap::new(),
            answered_at: now,
        }
    }

    /// Latest time of the next heartbeat.
    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    /// Notes that the state of a host with `tasks` tasks changed. True: a heartbeat must be sent now.
    /// False: it becomes due soon, because one was sent recently.
    pub(super) fn is_status_due_now(&mut self, tasks: usize) -> bool {
        let Some(pause_ends) = self.status_sent.map(|sent| sent + status_interval(tasks)) else {
            return true;
        };
        if Instant::now() >= pause_ends {
            return true;
        }
        self.until_status = 0;
        self.due = self.due.min(pause_ends);
        false
    }

    /// Counts a heartbeat that is sent now. Returns its sequence number and whether it carries the whole
    /// state.
    pub(super) fn next(&mut self, now: MonotonicMs, changed: bool) -> (u64, bool) {
        let whole = changed || self.until_status == 0;
        self.until_status = if whole {
            HEARTBEATS_PER_STATUS
        } else {
            self.until_status - 1
        };
        if whole {
            self.status_sent = Some(Instant::now());
        }
        self.sequence += 1;
        self.sent.insert(self.sequence, now);
        if self.sent.len() > HEARTBEATS_MEASURED_MAX {
            self.sent.pop_first();
        }
        self.due = self.next_due();
        (self.sequence, whole)
    }

    /// Up to a tenth early, so that workers do not send heartbeats in step.
    fn next_due(&self) -> Instant {
        let period = Duration::from_millis(self.period_ms);
        Instant::now() + period - jitter(period / 10)
    }

    /// A whole state was not sent: the next heartbeat must carry it.
    pub(super) const fn status_lost(&mut self) {
        self.until_status = 0;
    }

    /// The leader acknowledged a heartbeat and requests one every `period_ms` from now on; the period of
    /// the session's start if none is given. The period is limited by the time after which silent hosts are
    /// lost. Returns the round trip in milliseconds, if it is remembered.
    pub(super) fn acknowledged(
        &mut self,
        sequence: u64,
        period_ms: Option<u64>,
        now: MonotonicMs,
    ) -> Option<u64> {
        self.answered_at = now;
        let usual_ms = self.timings.heartbeat_ms;
        let period_ms = period_ms.map_or(usual_ms, |wanted_ms| {
            wanted_ms.clamp(usual_ms, self.timings.heartbeat_ms_max())
        });
        if std::mem::replace(&mut self.period_ms, period_ms) > period_ms {
            self.due = self.due.min(self.next_due());
        }
        metrics::heartbeat_interval_ms(period_ms);
        let sent_at = self.sent.remove(&sequence);
        let round_trip_ms = sent_at.map(|sent_at| now.since(sent_at));
        round_trip_ms.inspect(|took_ms| metrics::heartbeat_round_trip_ms(*took_ms));
        self.sent = self.sent.split_off(&sequence);
        round_trip_ms
    }

    /// Whether the leader has been silent for so long that another one should be looked for.
    pub(super) fn is_unanswered(&self, now: MonotonicMs) -> bool {
        now.since(self.answered_at) > self.timings.leader_timeout_ms(self.period_ms)
    }
}

/// Minimum interval between heartbeats with the whole state of `tasks` tasks.
fn status_interval(tasks: usize) -> Duration {
    let tasks = u32::try_from(tasks).unwrap_or(u32::MAX);
    (STATUS_PAUSE * tasks.max(STATUS_PAUSE_TASKS) / STATUS_PAUSE_TASKS).min(STATUS_PAUSE_MAX)
}

/// Fills in the host's id: findings may be made before the leader assigns it.
pub(super) fn name_host(heartbeat: &mut Heartbeat, id: HostId) {
    let findings = heartbeat.status.iter_mut().flat_map(|it| &mut it.findings);
    for finding in findings {
        match &mut finding.component {
            Component::Host(host) | Component::Nic { host, .. } => *host = id,
            Component::Gpu(_) | Component::Rack(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: MonotonicMs = MonotonicMs(1_000);

    #[tokio::test(start_paused = true)]
    async fn the_status_is_sent_first_after_changes_and_periodically() {
        let mut heartbeats = Heartbeats::new(Timings::default(), START);
        assert_eq!(heartbeats.next(START, false), (1, true));
        for sequence in 2..2 + HEARTBEATS_PER_STATUS {
            assert_eq!(heartbeats.next(START, false), (sequence, false));
        }
        assert!(heartbeats.next(START, false).1);
        assert!(heartbeats.next(START, true).1);
        heartbeats.status_lost();
        assert!(heartbeats.next(START, false).1);
    }

    #[tokio::test(start_paused = true)]
    async fn consecutive_changes_share_a_heartbeat() {
        let mut heartbeats = Heartbeats::new(Timings::default(), START);
        assert!(heartbeats.is_status_due_now(1));
        assert_eq!(heartbeats.next(START, true), (1, true));
        assert!(!heartbeats.is_status_due_now(1) && !heartbeats.is_status_due_now(2));
        assert_eq!(heartbeats.due() - Instant::now(), STATUS_PAUSE);
        tokio::time::advance(STATUS_PAUSE).await;
        assert_eq!(heartbeats.next(START, false), (2, true));
        tokio::time::advance(STATUS_PAUSE).await;
        assert!(heartbeats.is_status_due_now(1));
    }

    #[test]
    fn the_more_tasks_a_heartbeat_reports_the_more_changes_share_one() {
        assert_eq!(status_interval(0), STATUS_PAUSE);
        assert_eq!(status_interval(32), STATUS_PAUSE);
        assert_eq!(status_interval(48), STATUS_PAUSE * 3 / 2);
        assert_eq!(status_interval(128), STATUS_PAUSE_MAX);
        assert_eq!(status_interval(usize::MAX), STATUS_PAUSE_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeats_are_due_within_their_period_and_not_in_step() {
        let mut heartbeats = Heartbeats::new(Timings::default(), START);
        for _ in 0..100 {
            heartbeats.next(START, false);
            let wait = heartbeats.due() - Instant::now();
            assert!(wait <= Duration::from_secs(5) && wait >= Duration::from_millis(4_500));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_left_if_its_leader_does_not_answer() {
        let mut heartbeats = Heartbeats::new(Timings::default(), START);
        assert!(!heartbeats.is_unanswered(START.after(10_000)));
        assert!(heartbeats.is_unanswered(START.after(10_001)));
        heartbeats.acknowledged(1, None, START.after(10_001));
        assert!(!heartbeats.is_unanswered(START.after(20_001)));
        assert!(heartbeats.is_unanswered(START.after(20_002)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_under_load_receives_fewer_heartbeats_and_the_next_one_as_usual() {
        let mut heartbeats = Heartbeats::new(Timings::default(), START);
        heartbeats.next(START, false);
        heartbeats.acknowledged(1, Some(10_000), START);
        heartbeats.next(START, false);
        let wait = heartbeats.due() - Instant::now();
        assert!(wait > Duration::from_secs(8) && wait <= Duration::from_secs(10));
        // The timeout of an unanswered heartbeat does not change: 5 s.
        assert!(!heartbeats.is_unanswered(START.after(15_000)));
        assert!(heartbeats.is_unanswered(START.after(15_001)));
        // The load is gone: the next heartbeat is due sooner, not only the one after it.
        heartbeats.acknowledged(2, None, START);
        assert!(heartbeats.due() - Instant::now() <= Duration::from_secs(5));
        // The period has an upper limit.
        heartbeats.acknowledged(2, Some(3_600_000), START);
        heartbeats.next(START, false);
        assert!(heartbeats.due() - Instant::now() <= Duration::from_secs(15));
        let next_session = Heartbeats::new(Timings::default(), START);
        assert!(next_session.is_unanswered(START.after(10_001)));
    }
}
