//! Planning loop of the leader: decides when the planner runs and how thoroughly it searches.
//!
//! A plan is made only after a change that could let waiting work be placed, and rarely enough that planning
//! without success takes at most half the leader's time.

use muster_engine::state::State;
use muster_model::time::TimeMs;
use muster_planner::{Budget, MOVES_TRIED_AGAIN_MS, Plan, plan, plan_in_place};
use tokio::time::{Duration, Instant};

/// Longest pause after a round that decided nothing.
pub const PLAN_REST_MS_MAX: u64 = 250;

/// Whether a planning round is due.
#[derive(Debug)]
pub(super) struct Planning {
    is_due: bool,
    /// Time at which the passing of time alone changes what can be decided.
    at: Option<TimeMs>,
    rest_until: Option<Instant>,
    /// Time of the next search for moves: at the last one, none was worth its cost.
    moves_at: Option<TimeMs>,
}

impl Planning {
    /// A new leader plans at once.
    pub(super) const fn new() -> Self {
        Self {
            is_due: true,
            at: None,
            rest_until: None,
            moves_at: None,
        }
    }

    /// Requests a round after a change that could let waiting work be placed.
    pub(super) const fn request(&mut self) {
        self.is_due = true;
    }

    /// Requests a round at `at`, when a back-off ends or a reservation falls due.
    pub(super) fn request_at(&mut self, at: Option<TimeMs>) {
        if let Some(at) = at {
            self.at = Some(self.at.map_or(at, |earlier| earlier.min(at)));
        }
    }

    /// Consumes the request if a round should run now.
    pub(super) fn take(&mut self, wall: TimeMs) -> bool {
        if self.at.is_some_and(|at| at <= wall) {
            self.at = None;
            self.is_due = true;
        }
        if !self.is_due || self.rest_until.is_some_and(|until| until > Instant::now()) {
            return false;
        }
        self.is_due = false;
        true
    }

    /// Scope of the next round, as a metric label.
    pub(super) fn scope(&self, now: TimeMs) -> &'static str {
        if self.moves_at.is_some_and(|at| at > now) {
            "in_place"
        } else {
            "whole"
        }
    }

    /// Plans. Moves that were not worth their cost are not searched for again within
    /// [`MOVES_TRIED_AGAIN_MS`], whatever happens meanwhile: the search may take many times as long as the
    /// rest of a round, and every change requests a round.
    pub(super) fn plan(&mut self, state: &State, now: TimeMs, budget: Budget) -> Plan {
        if let Some(at) = self.moves_at.filter(|at| *at > now) {
            let planned = plan_in_place(state, now, budget);
            self.request_at(Some(at));
            self.request_at(planned.again_at);
            return planned;
        }
        let planned = plan(state, now, budget);
        self.moves_at = planned
            .moves_not_worthwhile
            .then(|| now.after(MOVES_TRIED_AGAIN_MS));
        self.request_at(planned.again_at);
        planned
    }

    /// Records a round that ran for `took` and proposed `steps` steps.
    pub(super) fn ran(&mut self, took: Duration, steps: usize) {
        let rest = took.min(Duration::from_millis(PLAN_REST_MS_MAX));
        self.rest_until = (steps == 0).then(|| Instant::now() + rest);
    }

    /// Time of the next round if nothing else happens before.
    pub(super) fn wake_at(&self, wall: TimeMs) -> Option<Instant> {
        if self.is_due {
            return Some(self.rest_until.unwrap_or_else(Instant::now));
        }
        self.at
            .map(|at| Instant::now() + Duration::from_millis(at.since(wall)))
    }
}

#[cfg(test)]
mod tests {
    use muster_harness::{Cluster, single};
    use muster_model::quota::{Defragment, QueueTree};
    use muster_planner::Blocker;

    use super::*;

    const WALL: TimeMs = TimeMs(1_000);

    #[tokio::test(start_paused = true)]
    async fn a_round_without_result_is_followed_by_a_pause_of_the_same_length() {
        let mut planning = Planning::new();
        assert!(planning.take(WALL));
        planning.ran(Duration::from_millis(40), 0);
        planning.request();
        assert!(!planning.take(WALL));
        tokio::time::advance(Duration::from_millis(41)).await;
        assert!(planning.take(WALL));
        planning.ran(Duration::from_millis(40), 7);
        planning.request();
        assert!(planning.take(WALL));
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_is_due_at_the_end_of_a_back_off() {
        let mut planning = Planning::new();
        assert!(planning.take(WALL));
        planning.request_at(Some(TimeMs(1_500)));
        planning.request_at(Some(TimeMs(1_200)));
        assert_eq!(
            planning.wake_at(WALL),
            Some(Instant::now() + Duration::from_millis(200))
        );
        assert!(!planning.take(TimeMs(1_199)));
        assert!(planning.take(TimeMs(1_200)));
    }

    /// Two hosts with half of their GPUs free each, and a job that has waited a minute for a whole host; no
    /// attempt can be moved.
    fn fragmented() -> Cluster {
        let mut cluster = Cluster::with_hosts(2, 4);
        cluster.configure(QueueTree {
            defragment: Some(Defragment::default()),
            ..QueueTree::default()
        });
        for host in ["node-0001", "node-0002"] {
            let mut half = single("half", 1, 2);
            half.scheduling.hosts = vec![host.to_owned()];
            let job = cluster.submit(half);
            for step in plan(&cluster.state, cluster.now, Budget::default()).steps {
                assert!(cluster.apply(&step).result.is_ok(), "{step:?}");
            }
            cluster.start_all(job);
        }
        cluster.submit(single("whole", 1, 4));
        cluster.wait(Defragment::default().after_ms);
        cluster
    }

    #[tokio::test]
    async fn rejected_moves_are_not_searched_for_again_immediately() {
        let cluster = fragmented();
        let after = |span_ms: u64| cluster.now.after(span_ms);
        let mut planning = Planning::new();
        assert!(planning.take(after(0)));
        let search = |planning: &mut Planning, span_ms| {
            let planned = planning.plan(&cluster.state, after(span_ms), Budget::default());
            let blocker = planned.blocked.first().map(|(_, blocker)| blocker);
            assert!(
                matches!(blocker, Some(Blocker::Resources { .. })),
                "the reason is the same in every round: {blocker:?}"
            );
            planned.moves_not_worthwhile
        };
        assert!(search(&mut planning, 0));
        assert!(!search(&mut planning, 1_000), "an event happened");
        assert!(!planning.take(after(MOVES_TRIED_AGAIN_MS - 1)));
        assert!(
            planning.take(after(MOVES_TRIED_AGAIN_MS)),
            "a round is due then without any event"
        );
        assert!(search(&mut planning, MOVES_TRIED_AGAIN_MS));
    }
}
