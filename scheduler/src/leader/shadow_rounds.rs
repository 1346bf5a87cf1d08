//! The leader's side of the shadow protocol: no beat is acknowledged before a majority remembers it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use muster_model::ids::{HostId, ReplicaId};
use muster_model::time::MonotonicMs;
use muster_proto::log::COMMAND_FORMAT;
use tokio::time::{Instant, timeout};

use crate::leader::feature_level::FORMAT_UNSAID;
use crate::leader::peer_links::{PeerError, PeerLinks};
use crate::leader::session::SessionId;
use crate::leader::shadow_store::{Fence, ShadowPush};
use crate::leader::telemetry;
use crate::leader::voter_sets::VoterSets;

/// Shortest time between the beginnings of two rounds, in milliseconds. The first beat after a pause
/// starts a round at once.
pub const SHADOW_ROUND_MS: u64 = 250;
/// Longest wait for a replica's answer to a push, in milliseconds.
pub const SHADOW_PUSH_MS_MAX: u64 = 1_000;

/// A beat that waits for its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitingBeat {
    /// The stream that brought it.
    pub(super) session: SessionId,
    /// Its sequence.
    pub(super) sequence: u64,
    /// When it was taken, on the leader's clock.
    pub(super) heard_at: MonotonicMs,
    /// When it arrived.
    pub(super) arrived: Instant,
}

/// What became of a push.
#[derive(Debug)]
pub(super) struct PushAnswer {
    round: u64,
    replica: ReplicaId,
    result: Result<u8, PeerError>,
}

#[derive(Debug)]
struct Round {
    number: u64,
    beats: BTreeMap<HostId, WaitingBeat>,
    /// Who remembers it.
    stored: BTreeSet<ReplicaId>,
    /// Whether it tells everything that is known.
    is_whole: bool,
    outstanding: usize,
    since: Instant,
}

/// The rounds of one leadership; at most one is in work.
pub(super) struct ShadowRounds {
    fence: Fence,
    waiting: BTreeMap<HostId, WaitingBeat>,
    in_work: Option<Round>,
    answers: FuturesUnordered<BoxFuture<'static, PushAnswer>>,
    /// Replicas that have not answered an earlier push yet: they get no further one meanwhile.
    busy: BTreeMap<ReplicaId, u64>,
    begun: u64,
    next_at: MonotonicMs,
    /// Which command format each replica said that it reads.
    formats: BTreeMap<ReplicaId, u8>,
    /// The format that all replicas are known to read.
    level: u8,
    /// Whose majority must remember a beat beside that of the voters: they will vote.
    widened: Option<Widened>,
}

/// Voters to come.
#[derive(Debug)]
struct Widened {
    voters: BTreeSet<ReplicaId>,
    /// Whether majorities of them, and of the voters of now, were told everything that is known.
    is_told: bool,
}

impl ShadowRounds {
    pub(super) fn new(fence: Fence) -> Self {
        Self {
            fence,
            waiting: BTreeMap::new(),
            in_work: None,
            answers: FuturesUnordered::new(),
            busy: BTreeMap::new(),
            begun: 0,
            next_at: MonotonicMs(0),
            formats: BTreeMap::new(),
            level: FORMAT_UNSAID,
            widened: None,
        }
    }

    /// From now on a beat counts as remembered only if a majority of these remembers it too; the next rounds tell everything
    /// that is known of all hosts, until they remember that.
    pub(super) fn widen(&mut self, voters: BTreeSet<ReplicaId>) {
        self.widened = Some(Widened {
            voters,
            is_told: false,
        });
    }

    /// Who votes, by the membership, counts again.
    pub(super) fn narrow(&mut self) {
        self.widened = None;
    }

    /// Whether the voters to come remember everything that was known when they were named, and all that came since.
    pub(super) fn is_wide(&self) -> bool {
        self.widened.as_ref().is_some_and(|widened| widened.is_told)
    }

    /// Whose majorities must remember a beat: those of these sets of voters, and of those to come.
    pub(super) fn sets(&self, voters: VoterSets) -> VoterSets {
        voters.and(self.widened.as_ref().map(|widened| &widened.voters))
    }

    /// The newest command format that a replica said it reads.
    pub(super) fn format_of(&self, replica: ReplicaId) -> Option<u8> {
        self.formats.get(&replica).copied()
    }

    fn owes_all(&self) -> bool {
        self.widened
            .as_ref()
            .is_some_and(|widened| !widened.is_told)
    }

    /// A beat arrived; only the newest of a host waits.
    pub(super) fn heard(&mut self, host: HostId, beat: WaitingBeat) {
        self.waiting.insert(host, beat);
    }

    /// When the next round should begin, if beats wait for one or the others' formats are asked for.
    pub(super) fn due_at(&self) -> Option<MonotonicMs> {
        let is_wanted = !self.waiting.is_empty() || self.asks_formats() || self.owes_all();
        (self.in_work.is_none() && is_wanted).then_some(self.next_at)
    }

    /// Whether it is not known yet that all replicas read what this one writes: rounds without beats find out.
    pub(super) const fn asks_formats(&self) -> bool {
        self.level < COMMAND_FORMAT
    }

    /// The command format that this replica and these others read, as far as they said.
    pub(super) fn common_format(&self, others: impl Iterator<Item = ReplicaId>) -> u8 {
        let said = others.map(|replica| self.formats.get(&replica).copied());
        let least = said.map(|format| format.unwrap_or(FORMAT_UNSAID)).min();
        least.map_or(COMMAND_FORMAT, |least| least.min(COMMAND_FORMAT))
    }

    /// All replicas are known to read this format.
    pub(super) const fn set_level(&mut self, level: u8) {
        self.level = level;
    }

    /// The format that all replicas are known to read.
    pub(super) const fn level(&self) -> u8 {
        self.level
    }

    /// Takes what the next round tells, if one is due: the beats that wait, and all that is `known` of hosts if voters to
    /// come do not know it yet.
    pub(super) fn begin(
        &mut self,
        now: MonotonicMs,
        known: impl FnOnce() -> BTreeMap<HostId, MonotonicMs>,
    ) -> Option<Arc<ShadowPush>> {
        if self.due_at()? > now {
            return None;
        }
        let is_whole = self.owes_all();
        let beats = std::mem::take(&mut self.waiting);
        let mut heard_at = if is_whole { known() } else { BTreeMap::new() };
        for (host, beat) in &beats {
            let at = heard_at.entry(*host).or_insert(beat.heard_at);
            *at = beat.heard_at.max(*at);
        }
        let heard_ago_ms = heard_at
            .into_iter()
            .map(|(host, at)| (host, now.since(at)))
            .collect();
        self.begun += 1;
        self.next_at = now.after(SHADOW_ROUND_MS);
        self.in_work = Some(Round {
            number: self.begun,
            beats,
            stored: BTreeSet::new(),
            is_whole,
            outstanding: 0,
            since: Instant::now(),
        });
        Some(Arc::new(ShadowPush {
            fence: self.fence,
            heard_ago_ms,
            command_format: self.level,
        }))
    }

    /// Counts the leader's own memory.
    pub(super) fn stored_by(&mut self, own: ReplicaId) {
        if let Some(round) = &mut self.in_work {
            round.stored.insert(own);
        }
    }

    /// Tells the others.
    pub(super) fn push(
        &mut self,
        peers: &impl PeerLinks,
        replicas: impl Iterator<Item = ReplicaId>,
        push: &Arc<ShadowPush>,
    ) {
        let Some(round) = &mut self.in_work else {
            return;
        };
        for replica in replicas {
            if self.busy.contains_key(&replica) {
                continue;
            }
            self.busy.insert(replica, round.number);
            round.outstanding += 1;
            let number = round.number;
            let answer = peers.push_shadows(replica, Arc::clone(push));
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

    /// The next answer of a replica; never, if none is awaited.
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
            Err(error) => tracing::debug!(%error, "a shadow was not stored"),
        }
        if let Some(round) = &mut self.in_work
            && round.number == answer.round
        {
            round.outstanding -= 1;
            if answer.result.is_ok() {
                round.stored.insert(answer.replica);
            }
        }
    }

    /// The beats that a majority of every set of `voters`, and of those to come, remembers now, if the round is complete. A
    /// round that can not be completed any more gives its beats back to the next one.
    pub(super) fn complete(&mut self, voters: VoterSets) -> Vec<WaitingBeat> {
        let sets = self.sets(voters);
        let Some(round) = &self.in_work else {
            return Vec::new();
        };
        let is_stored = sets.have_majority(&round.stored);
        if !is_stored && round.outstanding > 0 {
            return Vec::new();
        }
        let Some(round) = self.in_work.take() else {
            return Vec::new();
        };
        if is_stored {
            if round.is_whole
                && let Some(widened) = &mut self.widened
            {
                widened.is_told = true;
            }
            telemetry::shadowed(round.since.elapsed());
            return round.beats.into_values().collect();
        }
        for (host, beat) in round.beats {
            self.waiting.entry(host).or_insert(beat);
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
    use crate::leader::shadow_store::ShadowReport;

    /// The same for all, so that beats can be compared.
    static ARRIVED: LazyLock<Instant> = LazyLock::new(Instant::now);

    /// Replicas with an even id answer, the others do not.
    struct EvenPeers;

    impl PeerLinks for EvenPeers {
        fn push_shadows(
            &self,
            replica: ReplicaId,
            _push: Arc<ShadowPush>,
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

        fn fetch_shadows(
            &self,
            replica: ReplicaId,
            _asking: Fence,
        ) -> impl Future<Output = Result<ShadowReport, PeerError>> + Send + 'static {
            ready(Err(PeerError::Unreachable {
                replica,
                detail: "unused".to_owned(),
            }))
        }
    }

    fn rounds() -> ShadowRounds {
        ShadowRounds::new(Fence {
            term: 1,
            epoch: LeadershipEpoch(1),
        })
    }

    fn beat(sequence: u64, at: u64) -> WaitingBeat {
        WaitingBeat {
            session: SessionId(1),
            sequence,
            heard_at: MonotonicMs(at),
            arrived: *ARRIVED,
        }
    }

    async fn run(rounds: &mut ShadowRounds, replicas: &[u64], now: u64) -> Vec<WaitingBeat> {
        run_in(rounds, &sets(&[replicas]), now).await.0
    }

    /// Sets of voters, of each of which replica 1 is one.
    fn sets(lists: &[&[u64]]) -> VoterSets {
        let set = |list: &&[u64]| -> BTreeSet<ReplicaId> {
            list.iter().copied().chain([1]).map(ReplicaId).collect()
        };
        let sets = lists.iter().map(set);
        sets.fold(VoterSets::default(), |sets, set| sets.and(Some(&set)))
    }

    /// The beats that are acknowledged, and how many hosts the round told of.
    async fn run_in(
        rounds: &mut ShadowRounds,
        voters: &VoterSets,
        now: u64,
    ) -> (Vec<WaitingBeat>, usize) {
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
        let beats = rounds.complete(voters.clone());
        (beats, push.heard_ago_ms.len())
    }

    #[tokio::test(start_paused = true)]
    async fn while_voters_change_a_majority_of_each_set_must_remember() {
        let mut rounds = rounds();
        rounds.heard(HostId(1), beat(1, 1_000));
        // 1, 2 and 4 are three of five, and one of three of the second set.
        let joint = sets(&[&[2, 4], &[5, 7]]);
        assert_eq!(run_in(&mut rounds, &joint, 1_000).await.0, Vec::new());
        let joint = sets(&[&[2, 3], &[3, 4]]);
        assert_eq!(
            run_in(&mut rounds, &joint, 2_000).await.0,
            vec![beat(1, 1_000)]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn voters_to_come_are_told_everything_before_they_count_as_wide() {
        let mut rounds = rounds();
        let voters = sets(&[&[2, 3]]);
        rounds.widen([1, 5, 7].map(ReplicaId).into());
        assert!(!rounds.is_wide());
        // Nothing waits, and a round begins all the same; its silent majority makes it begin again.
        assert_eq!(run_in(&mut rounds, &voters, 1_000).await, (Vec::new(), 2));
        assert!(!rounds.is_wide());
        rounds.widen([1, 4, 7].map(ReplicaId).into());
        rounds.heard(HostId(1), beat(1, 1_000));
        let told = run_in(&mut rounds, &voters, 2_000).await;
        assert_eq!(told, (vec![beat(1, 1_000)], 2));
        assert!(rounds.is_wide());
        // From then on only beats are told, and the voters to come must remember them.
        rounds.heard(HostId(1), beat(2, 2_000));
        let told = run_in(&mut rounds, &voters, 3_000).await;
        assert_eq!(told, (vec![beat(2, 2_000)], 1));
        rounds.narrow();
        assert!(!rounds.is_wide());
        assert_eq!(
            rounds.due_at(),
            Some(MonotonicMs(3_000 + SHADOW_ROUND_MS)).filter(|_| rounds.asks_formats())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_beat_is_acknowledged_once_a_majority_remembers_it() {
        let mut rounds = rounds();
        rounds.heard(HostId(1), beat(1, 1_000));
        assert_eq!(run(&mut rounds, &[2, 3], 1_000).await, vec![beat(1, 1_000)]);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_majority_nothing_is_acknowledged_and_the_next_round_tries_again() {
        let mut rounds = rounds();
        rounds.heard(HostId(1), beat(1, 1_000));
        assert_eq!(run(&mut rounds, &[3, 5], 1_000).await, Vec::new());
        assert_eq!(rounds.due_at(), Some(MonotonicMs(1_000 + SHADOW_ROUND_MS)));
        assert_eq!(run(&mut rounds, &[2, 5], 2_000).await, vec![beat(1, 1_000)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_be_proposed_is_what_all_replicas_said_that_they_read() {
        let others = |replicas: &[u64]| -> Vec<ReplicaId> {
            replicas.iter().copied().map(ReplicaId).collect()
        };
        let mut rounds = rounds();
        assert_eq!(
            rounds.common_format(others(&[]).into_iter()),
            COMMAND_FORMAT
        );
        // Nothing waits, and a round begins all the same.
        run(&mut rounds, &[2, 3], 1_000).await;
        let with_a_silent_one = others(&[2, 3]).into_iter();
        assert_eq!(rounds.common_format(with_a_silent_one), FORMAT_UNSAID);
        let who_answered = others(&[2]).into_iter();
        assert_eq!(rounds.common_format(who_answered), COMMAND_FORMAT);
        rounds.set_level(COMMAND_FORMAT);
        assert_eq!(rounds.due_at(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_alone_is_its_own_majority() {
        let mut rounds = rounds();
        rounds.heard(HostId(1), beat(4, 10));
        assert_eq!(run(&mut rounds, &[], 10).await, vec![beat(4, 10)]);
    }
}
