//! Leader side of the replication of heartbeat times: no heartbeat is acknowledged before a majority has
//! stored it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use muster_log::{COMMAND_FORMAT, OLDEST_COMMAND_FORMAT};
use muster_model::ids::{HostId, ReplicaId};
use muster_model::time::MonotonicMs;
use tokio::time::{Instant, timeout};

use crate::leader::heartbeat_store::{Fence, HeartbeatPush};
use crate::leader::peer_links::{PeerError, PeerLinks};
use crate::leader::session::SessionId;
use crate::leader::telemetry;
use crate::leader::voter_sets::VoterSets;

/// Shortest time between the starts of two rounds, in milliseconds. The first heartbeat after a pause starts
/// a round at once.
pub const SHADOW_ROUND_MS: u64 = 250;
/// Longest wait for a replica's answer to a push, in milliseconds.
pub const SHADOW_PUSH_MS_MAX: u64 = 1_000;

/// A heartbeat that waits for its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PendingHeartbeat {
    /// The stream that it arrived on.
    pub(super) session: SessionId,
    /// Its sequence number.
    pub(super) sequence: u64,
    /// Time of processing, on the leader's clock.
    pub(super) processed_at: MonotonicMs,
    /// Time of arrival.
    pub(super) arrived: Instant,
}

/// Result of a push.
#[derive(Debug)]
pub(super) struct PushAnswer {
    round: u64,
    replica: ReplicaId,
    result: Result<u8, PeerError>,
}

#[derive(Debug)]
struct Round {
    number: u64,
    heartbeats: BTreeMap<HostId, PendingHeartbeat>,
    /// Replicas that stored it.
    stored: BTreeSet<ReplicaId>,
    /// Whether the push contained all known hosts.
    is_whole: bool,
    outstanding: usize,
    since: Instant,
}

/// The rounds of one leadership; at most one is in progress.
pub(super) struct ReplicationRounds {
    fence: Fence,
    waiting: BTreeMap<HostId, PendingHeartbeat>,
    current: Option<Round>,
    answers: FuturesUnordered<BoxFuture<'static, PushAnswer>>,
    /// Replicas with an unanswered earlier push: they get no further one meanwhile.
    busy: BTreeMap<ReplicaId, u64>,
    started: u64,
    next_at: MonotonicMs,
    /// Command format that each replica reported.
    formats: BTreeMap<ReplicaId, u8>,
    /// Newest format that all replicas are known to read.
    level: u8,
    /// Future voters, whose majority must also store a heartbeat.
    future: Option<FutureVoters>,
}

/// Future voters.
#[derive(Debug)]
struct FutureVoters {
    voters: BTreeSet<ReplicaId>,
    /// Whether majorities of them and of the current voters have stored everything that is known.
    is_caught_up: bool,
}

impl ReplicationRounds {
    pub(super) fn new(fence: Fence) -> Self {
        Self {
            fence,
            waiting: BTreeMap::new(),
            current: None,
            answers: FuturesUnordered::new(),
            busy: BTreeMap::new(),
            started: 0,
            next_at: MonotonicMs(0),
            formats: BTreeMap::new(),
            level: OLDEST_COMMAND_FORMAT,
            future: None,
        }
    }

    /// From now on a heartbeat counts as stored only if a majority of these voters has stored it too; the
    /// next rounds send all known hosts until they have stored them.
    pub(super) fn include_future_voters(&mut self, voters: BTreeSet<ReplicaId>) {
        self.future = Some(FutureVoters {
            voters,
            is_caught_up: false,
        });
    }

    /// Returns to the voters of the membership alone.
    pub(super) fn drop_future_voters(&mut self) {
        self.future = None;
    }

    /// Whether the future voters have stored everything that was known when they were named, and all that
    /// came since.
    pub(super) fn future_voters_caught_up(&self) -> bool {
        self.future
            .as_ref()
            .is_some_and(|future| future.is_caught_up)
    }

    /// The sets of voters whose majorities must store a heartbeat: the given ones and the future voters.
    pub(super) fn sets(&self, voters: VoterSets) -> VoterSets {
        voters.and(self.future.as_ref().map(|future| &future.voters))
    }

    /// Newest command format that a replica reported.
    pub(super) fn format_of(&self, replica: ReplicaId) -> Option<u8> {
        self.formats.get(&replica).copied()
    }

    fn owes_all(&self) -> bool {
        self.future
            .as_ref()
            .is_some_and(|future| !future.is_caught_up)
    }

    /// Records a heartbeat; only the newest of a host waits.
    pub(super) fn record(&mut self, host: HostId, heartbeat: PendingHeartbeat) {
        self.waiting.insert(host, heartbeat);
    }

    /// Time of the next round, if heartbeats wait for one or formats are still to be asked for.
    pub(super) fn due_at(&self) -> Option<MonotonicMs> {
        let is_wanted = !self.waiting.is_empty() || self.asks_formats() || self.owes_all();
        (self.current.is_none() && is_wanted).then_some(self.next_at)
    }

    /// Whether it is still unknown that all replicas read what this one writes: rounds without heartbeats
    /// find out.
    pub(super) const fn asks_formats(&self) -> bool {
        self.level < COMMAND_FORMAT
    }

    /// Newest command format that this replica and the given others read; 0 while some have not reported.
    pub(super) fn common_format(&self, others: impl Iterator<Item = ReplicaId>) -> u8 {
        let formats = others.map(|replica| self.formats.get(&replica).copied());
        let least = formats.map(Option::unwrap_or_default).min();
        least.map_or(COMMAND_FORMAT, |least| least.min(COMMAND_FORMAT))
    }

    /// Records that all replicas read this format.
    pub(super) const fn set_level(&mut self, level: u8) {
        self.level = level;
    }

    /// Newest format that all replicas are known to read.
    pub(super) const fn level(&self) -> u8 {
        self.level
    }

    /// Takes the content of the next round, if one is due: the waiting heartbeats, and all that is `known` of
    /// hosts if the future voters lack it.
    pub(super) fn begin(
        &mut self,
        now: MonotonicMs,
        known: impl FnOnce() -> BTreeMap<HostId, MonotonicMs>,
    ) -> Option<Arc<HeartbeatPush>> {
        if self.due_at()? > now {
            return None;
        }
        let is_whole = self.owes_all();
        let heartbeats = std::mem::take(&mut self.waiting);
        let mut received_at = if is_whole { known() } else { BTreeMap::new() };
        for (host, heartbeat) in &heartbeats {
            let at = received_at.entry(*host).or_insert(heartbeat.processed_at);
            *at = heartbeat.processed_at.max(*at);
        }
        let last_heartbeat_age_ms = received_at
            .into_iter()
            .map(|(host, at)| (host, now.since(at)))
            .collect();
        self.started += 1;
        self.next_at = now.after(SHADOW_ROUND_MS);
        self.current = Some(Round {
            number: self.started,
            heartbeats,
            stored: BTreeSet::new(),
            is_whole,
            outstanding: 0,
            since: Instant::now(),
        });
        Some(Arc::new(HeartbeatPush {
            fence: self.fence,
            last_heartbeat_age_ms,
            command_format: self.level,
        }))
    }

    /// Counts the leader's own store.
    pub(super) fn stored_by(&mut self, own: ReplicaId) {
        if let Some(round) = &mut self.current {
            round.stored.insert(own);
        }
    }

    /// Pushes to the other replicas.
    pub(super) fn push(
        &mut self,
        peers: &impl PeerLinks,
        replicas: impl Iterator<Item = ReplicaId>,
        push: &Arc<HeartbeatPush>,
    ) {
        let Some(round) = &mut self.current else {
            return;
        };
        for replica in replicas {
            if self.busy.contains_key(&replica) {
                continue;
            }
            self.busy.insert(replica, round.number);
            round.outstanding += 1;
            let number = round.number;
            let answer = peers.push_heartbeats(replica, Arc::clone(push));
            self.answers.push(Box::pin(async move {
                let limit = Duration::from_millis(SHADOW_PUSH_MS_MAX);
                let result = timeout(limit, answer).await.unwrap_or_else(|_| {
                    Err(PeerError::Unreachable {
                        replica,
                        detail: format!("no answer within {SHADOW_PUSH_MS_MAX} ms"),
                    })
                });
                PushAnswer {
                    round: number,
                    replica,
                    result,
                }
            }));
        }
    }

    /// Resolves with the next push answer; pends forever if none is outstanding.
    pub(super) async fn answered(&mut self) -> PushAnswer {
        match self.answers.next().await {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }

    /// Counts an answer.
    pub(super) fn count(&mut self, answer: &PushAnswer) {
        self.busy.remove(&answer.replica);
        match &answer.result {
            Ok(format) => {
                self.formats.insert(answer.replica, *format);
            }
            Err(error) => tracing::debug!(%error, "a replica did not store the heartbeat times"),
        }
        if let Some(round) = &mut self.current
            && round.number == answer.round
        {
            round.outstanding -= 1;
            if answer.result.is_ok() {
                round.stored.insert(answer.replica);
            }
        }
    }

    /// The heartbeats that a majority of every set of `voters`, and of the future voters, has stored by now,
    /// if the round is complete. A round that can no longer complete returns its heartbeats to the next one.
    pub(super) fn complete(&mut self, voters: VoterSets) -> Vec<PendingHeartbeat> {
        let sets = self.sets(voters);
        let Some(round) = &self.current else {
            return Vec::new();
        };
        let is_stored = sets.have_majority(&round.stored);
        if !is_stored && round.outstanding > 0 {
            return Vec::new();
        }
        let Some(round) = self.current.take() else {
            return Vec::new();
        };
        if is_stored {
            if round.is_whole
                && let Some(future) = &mut self.future
            {
                future.is_caught_up = true;
            }
            telemetry::replication_took(round.since.elapsed());
            return round.heartbeats.into_values().collect();
        }
        for (host, heartbeat) in round.heartbeats {
            self.waiting.entry(host).or_insert(heartbeat);
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, ready};
    use std::sync::LazyLock;

    use muster_model::ids::LeadershipEpoch;

    use super::*;
    use crate::leader::heartbeat_store::HeartbeatReport;

    /// The same for all, so that heartbeats can be compared.
    static ARRIVED: LazyLock<Instant> = LazyLock::new(Instant::now);

    /// Replicas with an even id answer, the others do not.
    struct EvenPeers;

    impl PeerLinks for EvenPeers {
        fn push_heartbeats(
            &self,
            replica: ReplicaId,
            _push: Arc<HeartbeatPush>,
        ) -> impl Future<Output = Result<u8, PeerError>> + Send + 'static {
            let silent = PeerError::Unreachable {
                replica,
                detail: "odd".to_owned(),
            };
            ready(if replica.get().is_multiple_of(2) {
                Ok(COMMAND_FORMAT)
            } else {
                Err(silent)
            })
        }

        fn fetch_heartbeats(
            &self,
            replica: ReplicaId,
            _asking: Fence,
        ) -> impl Future<Output = Result<HeartbeatReport, PeerError>> + Send + 'static {
            ready(Err(PeerError::Unreachable {
                replica,
                detail: "unused".to_owned(),
            }))
        }
    }

    fn rounds() -> ReplicationRounds {
        ReplicationRounds::new(Fence {
            term: 1,
            epoch: LeadershipEpoch(1),
        })
    }

    fn heartbeat(sequence: u64, at: u64) -> PendingHeartbeat {
        PendingHeartbeat {
            session: SessionId(1),
            sequence,
            processed_at: MonotonicMs(at),
            arrived: *ARRIVED,
        }
    }

    async fn run(
        rounds: &mut ReplicationRounds,
        replicas: &[u64],
        now: u64,
    ) -> Vec<PendingHeartbeat> {
        run_in(rounds, &sets(&[replicas]), now).await.0
    }

    /// Sets of voters, each of which contains replica 1.
    fn sets(lists: &[&[u64]]) -> VoterSets {
        let set = |list: &&[u64]| -> BTreeSet<ReplicaId> {
            list.iter().copied().chain([1]).map(ReplicaId).collect()
        };
        let sets = lists.iter().map(set);
        sets.fold(VoterSets::default(), |sets, set| sets.and(Some(&set)))
    }

    /// The acknowledged heartbeats, and the number of hosts in the round.
    async fn run_in(
        rounds: &mut ReplicationRounds,
        voters: &VoterSets,
        now: u64,
    ) -> (Vec<PendingHeartbeat>, usize) {
        let known = || [(HostId(1), MonotonicMs(5)), (HostId(2), MonotonicMs(7))].into();
        let push = rounds
            .begin(MonotonicMs(now), known)
            .expect("a round is due");
        rounds.stored_by(ReplicaId(1));
        let asked: Vec<_> = rounds.sets(voters.clone()).others(ReplicaId(1)).collect();
        rounds.push(&EvenPeers, asked.iter().copied(), &push);
        for _ in asked {
            let answer = rounds.answered().await;
            rounds.count(&answer);
        }
        let heartbeats = rounds.complete(voters.clone());
        (heartbeats, push.last_heartbeat_age_ms.len())
    }

    #[tokio::test(start_paused = true)]
    async fn while_voters_change_a_majority_of_each_set_must_store_a_heartbeat() {
        let mut rounds = rounds();
        rounds.record(HostId(1), heartbeat(1, 1_000));
        // 1, 2 and 4 are three of five, and one of three of the second set.
        let joint = sets(&[&[2, 4], &[5, 7]]);
        assert_eq!(run_in(&mut rounds, &joint, 1_000).await.0, Vec::new());
        let joint = sets(&[&[2, 3], &[3, 4]]);
        assert_eq!(
            run_in(&mut rounds, &joint, 2_000).await.0,
            vec![heartbeat(1, 1_000)]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn future_voters_receive_all_heartbeat_times_before_they_count_as_caught_up() {
        let mut rounds = rounds();
        let voters = sets(&[&[2, 3]]);
        rounds.include_future_voters([1, 5, 7].map(ReplicaId).into());
        assert!(!rounds.future_voters_caught_up());
        // A round begins although no heartbeat waits; its silent majority makes it begin again.
        assert_eq!(run_in(&mut rounds, &voters, 1_000).await, (Vec::new(), 2));
        assert!(!rounds.future_voters_caught_up());
        rounds.include_future_voters([1, 4, 7].map(ReplicaId).into());
        rounds.record(HostId(1), heartbeat(1, 1_000));
        let acknowledged = run_in(&mut rounds, &voters, 2_000).await;
        assert_eq!(acknowledged, (vec![heartbeat(1, 1_000)], 2));
        assert!(rounds.future_voters_caught_up());
        // From then on only heartbeats are pushed, and the future voters must store them.
        rounds.record(HostId(1), heartbeat(2, 2_000));
        let acknowledged = run_in(&mut rounds, &voters, 3_000).await;
        assert_eq!(acknowledged, (vec![heartbeat(2, 2_000)], 1));
        rounds.drop_future_voters();
        assert!(!rounds.future_voters_caught_up());
        assert_eq!(rounds.due_at(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_heartbeat_is_acknowledged_once_a_majority_has_stored_it() {
        let mut rounds = rounds();
        rounds.record(HostId(1), heartbeat(1, 1_000));
        assert_eq!(
            run(&mut rounds, &[2, 3], 1_000).await,
            vec![heartbeat(1, 1_000)]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_majority_no_heartbeat_is_acknowledged_and_the_next_round_retries() {
        let mut rounds = rounds();
        rounds.record(HostId(1), heartbeat(1, 1_000));
        assert_eq!(run(&mut rounds, &[3, 5], 1_000).await, Vec::new());
        assert_eq!(rounds.due_at(), Some(MonotonicMs(1_000 + SHADOW_ROUND_MS)));
        assert_eq!(
            run(&mut rounds, &[2, 5], 2_000).await,
            vec![heartbeat(1, 1_000)]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_common_format_is_the_newest_that_all_replicas_reported() {
        let others = |replicas: &[u64]| -> Vec<ReplicaId> {
            replicas.iter().copied().map(ReplicaId).collect()
        };
        let mut rounds = rounds();
        rounds.set_level(COMMAND_FORMAT - 1);
        assert_eq!(
            rounds.common_format(others(&[]).into_iter()),
            COMMAND_FORMAT
        );
        // A round begins although no heartbeat waits.
        run(&mut rounds, &[2, 3], 1_000).await;
        let with_a_silent_one = others(&[2, 3]).into_iter();
        assert_eq!(rounds.common_format(with_a_silent_one), 0);
        let who_answered = others(&[2]).into_iter();
        assert_eq!(rounds.common_format(who_answered), COMMAND_FORMAT);
        rounds.set_level(COMMAND_FORMAT);
        assert_eq!(rounds.due_at(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_replica_is_its_own_majority() {
        let mut rounds = rounds();
        rounds.record(HostId(1), heartbeat(4, 10));
        assert_eq!(run(&mut rounds, &[], 10).await, vec![heartbeat(4, 10)]);
    }
}
