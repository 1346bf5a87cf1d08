//! Measurements of a run: for each kind of fault, the time without writes and the time until displaced
//! tasks ran again.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::command::{HostHealth, StopReason};
use muster_model::event::EventKind;
use muster_model::health::Component;
use muster_model::ids::{JobId, UnitIndex};
use serde::Serialize;

use crate::cluster::Fault;
use crate::run::checkers::{Displaced, Evidence};
use crate::run::history::Operation;
use crate::run::nemesis::Episode;

/// Microseconds per millisecond.
const MS_US: u64 = 1_000;

/// Distribution of durations, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Distribution {
    /// Number of durations.
    pub count: usize,
    /// Median, by nearest rank.
    pub p50_ms: u64,
    /// 99th percentile, by nearest rank: the maximum of fewer than a hundred.
    pub p99_ms: u64,
    /// Maximum.
    pub max_ms: u64,
}

impl Distribution {
    /// Distribution of these durations; `None` without any.
    pub(in crate::run) fn of(mut durations_ms: Vec<u64>) -> Option<Self> {
        durations_ms.sort_unstable();
        let rank = |percent: usize| {
            let rank = (durations_ms.len() * percent).div_ceil(100);
            durations_ms.get(rank.saturating_sub(1)).copied()
        };
        Some(Self {
            count: durations_ms.len(),
            p50_ms: rank(50)?,
            p99_ms: rank(99)?,
            max_ms: *durations_ms.last()?,
        })
    }
}

/// Measurements of one kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FaultMeasurements {
    /// The fault.
    pub fault: Fault,
    /// Number of injections with enough load and with the intended effect.
    pub made: usize,
    /// Number of injections without enough load to prove anything.
    pub without_load: usize,
    /// Number of injections without the intended effect.
    pub without_effect: usize,
    /// Longest time without an acknowledged write, from each fault until recovery.
    pub unwritable: Option<Distribution>,
    /// Time from each fault until an attempt was placed, by the next leader if the leader is hit (P1).
    pub placed: Option<Distribution>,
    /// Time from each fault until the host that it silenced was recorded as lost: the leader's simultaneous
    /// death must not extend it (P2).
    pub lost: Option<Distribution>,
    /// Time from each fault until the units that it displaced ran again; only those running before the next
    /// fault.
    pub back: Option<Distribution>,
    /// Number of displaced units, whether or not they ran again, except those of jobs cancelled before.
    pub displaced: usize,
    /// Time from each repair until recovery.
    pub whole: Option<Distribution>,
    /// Time from each GPU fault until the GPU's removal from placement was committed (P4).
    pub closed: Option<Distribution>,
    /// Units displaced by GPU faults although they did not hold the GPU: must be 0 (P4).
    pub bystanders: Option<usize>,
    /// Like `placed`, but an event that did not happen before the next fault counts as having happened
    /// then.
    #[serde(skip)]
    pub(in crate::run) placed_at_least: Option<Distribution>,
    /// Like `back`, with the same substitution.
    #[serde(skip)]
    pub(in crate::run) back_at_least: Option<Distribution>,
}

/// An episode with the events from its fault until the next one.
struct EpisodeEvents<'a> {
    episode: &'a Episode,
    until_us: u64,
    kinds: Vec<(u64, EventKind)>,
}

impl EpisodeEvents<'_> {
    /// From the fault until the next one, in microseconds.
    const fn lasted_us(&self) -> u64 {
        self.until_us - self.episode.began_us
    }
}

/// Measurements of every kind of injected fault, in order of injection; the run ended at `to_us`.
pub(in crate::run) fn of_faults(evidence: &Evidence, to_us: u64) -> Vec<FaultMeasurements> {
    let watched = evidence.earliest();
    let episodes = &evidence.episodes;
    let ends = episodes.iter().skip(1).map(|next| next.began_us);
    let mut kinds: BTreeMap<Fault, Vec<EpisodeEvents<'_>>> = BTreeMap::new();
    for (episode, until_us) in episodes.iter().zip(ends.chain([to_us])) {
        let since = watched.kinds_since(episode.began_us);
        let seen = EpisodeEvents {
            episode,
            until_us,
            kinds: since.filter(|(at_us, _)| *at_us < until_us).collect(),
        };
        kinds.entry(episode.fault).or_default().push(seen);
    }
    let kinds = kinds.into_iter();
    kinds
        .map(|(fault, seen)| of_fault(fault, &seen, evidence))
        .collect()
}

impl FaultMeasurements {
    /// Empty measurements of a fault.
    #[cfg(test)]
    pub(in crate::run) const fn none_of(fault: Fault) -> Self {
        Self {
            fault,
            made: 0,
            without_load: 0,
            without_effect: 0,
            unwritable: None,
            placed: None,
            lost: None,
            back: None,
            displaced: 0,
            whole: None,
            closed: None,
            bystanders: None,
            placed_at_least: None,
            back_at_least: None,
        }
    }
}

fn of_fault(fault: Fault, seen: &[EpisodeEvents<'_>], evidence: &Evidence) -> FaultMeasurements {
    let loaded = seen.iter().filter(|it| it.episode.has_load());
    let (valid, void): (Vec<&EpisodeEvents<'_>>, Vec<&EpisodeEvents<'_>>) =
        loaded.partition(|it| has_effect(it));
    let spread = |duration_us: &dyn Fn(&EpisodeEvents<'_>) -> Option<u64>| {
        let durations = valid.iter().filter_map(|it| duration_us(it));
        Distribution::of(durations.map(|it| it / MS_US).collect())
    };
    let (mut back, mut missing) = (Vec::new(), Vec::new());
    for seen in valid.iter().filter(|_| fault.displaces()) {
        let (came, others) = displaced(seen);
        back.extend(came);
        missing.extend(std::iter::repeat_n(seen.lasted_us(), others));
    }
    let milliseconds = |us: &[u64], more: &[u64]| {
        Distribution::of([us, more].concat().iter().map(|it| it / MS_US).collect())
    };
    let bystanders = || {
        let watched = evidence.earliest();
        let displaced =
            { seen.iter() }.map(|it| Displaced::by(it.episode, &watched, &evidence.log.grants));
        displaced.map(|it| it.bystanders.len()).sum()
    };
    FaultMeasurements {
        fault,
        made: valid.len(),
        without_load: seen.len() - valid.len() - void.len(),
        without_effect: void.len(),
        unwritable: spread(&|it| {
            let until_us = it.until_us.min(evidence.calls_until_us);
            unwritable(it.episode, until_us, &evidence.operations)
        }),
        placed: spread(&placed),
        lost: fault.loses_host().then(|| spread(&lost)).flatten(),
        displaced: back.len() + missing.len(),
        back: milliseconds(&back, &[]),
        back_at_least: milliseconds(&back, &missing),
        placed_at_least: spread(&|it| Some(placed(it).unwrap_or_else(|| it.lasted_us()))),
        whole: spread(&|it| Some(it.episode.recovered_us? - it.episode.healed_us)),
        closed: spread(&closed),
        bystanders: (fault == Fault::GpuFaulted).then(bystanders),
    }
}

/// Whether the fault had its intended effect: a new leader, displaced or preempted units, a refused write,
/// or an installed snapshot.
fn has_effect(seen: &EpisodeEvents<'_>) -> bool {
    let fault = seen.episode.fault;
    if let Some(effect) = seen.episode.effect {
        return effect;
    }
    let came = |wanted: fn(&EventKind) -> bool| seen.kinds.iter().any(|(_, kind)| wanted(kind));
    if fault.ends_leadership() && !came(|kind| matches!(kind, EventKind::LeadershipStarted { .. }))
    {
        return false;
    }
    if fault.loses_host() && lost(seen).is_none() {
        return false;
    }
    match fault {
        // Whether the GPU is in use is a matter of chance.
        Fault::GpuFaulted => {
            { seen.kinds.iter() }.any(|(_, kind)| is_about_gpu(kind, seen.episode))
        }
        Fault::PreemptStorm => came(is_preemption),
        // No event shows these: without other evidence they had no effect.
        Fault::LeaderDiskFull | Fault::SnapshotStorm | Fault::DataWiped | Fault::MembersChanged => {
            false
        }
        _ => !fault.displaces() || came(is_displacement),
    }
}

/// Whether an event is a preemption; users cancel all the time.
fn is_preemption(kind: &EventKind) -> bool {
    matches!(kind, EventKind::AttemptStopping { cause, .. } if cause.reason == StopReason::Preempted)
}

/// Whether an event changes the state of the broken GPU.
fn is_about_gpu(kind: &EventKind, episode: &Episode) -> bool {
    let Some(broken) = episode.gpu else {
        return false;
    };
    match kind {
        EventKind::HealthChanged { component, .. } => *component == Component::Gpu(broken),
        EventKind::GpuHealthChanged { gpu, .. } => *gpu == broken,
        _ => false,
    }
}

const fn is_displacement(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::TaskLost { .. } | EventKind::UnitRequeued { .. } | EventKind::UnitRetried { .. }
    )
}

/// Longest gap between two acknowledged writes that overlaps an episode, counted from the fault, in
/// microseconds. After the last write it lasts until the next fault.
fn unwritable(episode: &Episode, until_us: u64, operations: &[Operation]) -> Option<u64> {
    let written = operations.iter().filter(|it| it.is_write());
    let ends: Vec<u64> = written.map(|it| it.completed_us).collect();
    let last = [until_us.max(ends.last().copied()?)];
    let gaps = ends.iter().zip(ends.iter().skip(1).chain(&last));
    let within = gaps.filter(|(from, to)| **to > episode.began_us && **from < episode.ended_us());
    within
        .map(|(from, to)| to - (*from).max(episode.began_us))
        .max()
}

/// Time until an attempt was placed, in microseconds; by another leader, if the fault ends a leadership.
fn placed(seen: &EpisodeEvents<'_>) -> Option<u64> {
    let mut is_led = !seen.episode.fault.ends_leadership();
    for (at_us, kind) in &seen.kinds {
        match kind {
            EventKind::LeadershipStarted { .. } => is_led = true,
            EventKind::AttemptPlaced { .. } if is_led => {
                return Some(at_us - seen.episode.began_us);
            }
            _ => {}
        }
    }
    None
}

/// Time until the target host was recorded as lost, in microseconds.
fn lost(seen: &EpisodeEvents<'_>) -> Option<u64> {
    let is_hit = |host: &str| seen.episode.target.split(' ').any(|hit| hit == host);
    let is_loss = |kind: &EventKind| {
        let lost = HostHealth::Lost;
        matches!(kind, EventKind::HostHealthChanged { name, health, .. } if *health == lost && is_hit(name))
    };
    let (at_us, _) = { seen.kinds.iter() }.find(|(_, kind)| is_loss(kind))?;
    Some(at_us - seen.episode.began_us)
}

/// Time until the broken GPU was out of placement, in microseconds.
fn closed(seen: &EpisodeEvents<'_>) -> Option<u64> {
    let gpu = Component::Gpu(seen.episode.gpu?);
    let is_closed = |kind: &EventKind| {
        matches!(kind,
            EventKind::HealthChanged { component, to, .. }
                if *component == gpu && !to.accepts_work())
    };
    let (at_us, _) = { seen.kinds.iter() }.find(|(_, kind)| is_closed(kind))?;
    Some(at_us - seen.episode.began_us)
}

/// Times until units displaced in the episode ran again, in microseconds, and the number that did not
/// before the next fault.
fn displaced(seen: &EpisodeEvents<'_>) -> (Vec<u64>, usize) {
    let mut waiting: BTreeSet<(JobId, UnitIndex)> = BTreeSet::new();
    let mut back = Vec::new();
    for (at_us, kind) in &seen.kinds {
        match kind {
            EventKind::TaskLost { job, unit, .. } | EventKind::UnitRequeued { job, unit, .. }
                if *at_us <= seen.episode.ended_us() =>
            {
                waiting.insert((*job, *unit));
            }
            EventKind::AttemptRunning { job, unit, .. } if waiting.remove(&(*job, *unit)) => {
                back.push(at_us - seen.episode.began_us);
            }
            // The job does not need them any more.
            EventKind::JobCancelRequested { job, .. } | EventKind::JobFinished { job, .. } => {
                waiting.retain(|(of, _)| of != job);
            }
            _ => {}
        }
    }
    (back, waiting.len())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_model::command::StopCause;
    use muster_model::desired::RestartReason;
    use muster_model::health::Phase;
    use muster_model::ids::{AttemptEpoch, GpuUuid, HostId, LeadershipEpoch, ReplicaId, Revision};
    use muster_model::time::TimeMs;

    use super::*;
    use crate::run::history::{Answer, Call, Outcome};

    #[test]
    fn percentiles_are_durations_that_were_measured() {
        assert_eq!(Distribution::of(Vec::new()), None);
        let spread = Distribution::of((1..=200).rev().collect()).unwrap();
        assert_eq!(
            (spread.p50_ms, spread.p99_ms, spread.max_ms),
            (100, 198, 200)
        );
        let few = Distribution::of(vec![5, 9]).unwrap();
        assert_eq!((few.p50_ms, few.p99_ms, few.max_ms), (5, 9, 9));
    }

    #[test]
    fn a_gap_counts_from_the_fault_on() {
        let write = |completed_us| Operation {
            user: 0,
            call: Call::Cancel(JobId(1)),
            invoked_us: completed_us - 1,
            completed_us,
            via: None,
            outcome: Outcome::Done(Answer {
                job: JobId(1),
                revision: Revision(1),
                phase: None,
            }),
        };
        let episode = Episode::of(Fault::LeaderKilled);
        let operations = [100, 900, 4_000, 4_100, 9_000].map(write);
        // From the fault at 1,000 to 4,000: earlier time does not count, and the gap at the end is longer.
        let until = |until_us, count: usize| unwritable(&episode, until_us, &operations[..count]);
        assert_eq!(until(4_100, 4), Some(3_000));
        assert_eq!(until(9_000, 5), Some(4_900));
        // No more writes.
        assert_eq!(until(8_000, 2), Some(7_000));
        assert_eq!(unwritable(&episode, 8_000, &[]), None);
    }

    #[test]
    fn displaced_work_returns_before_the_next_fault_or_never() {
        let episode = Episode {
            target: "node01".to_owned(),
            ..Episode::of(Fault::HostKilled)
        };
        let (job, unit) = (JobId(1), UnitIndex(0));
        let requeued = EventKind::UnitRequeued {
            job,
            unit,
            reason: RestartReason::Infra,
            not_before: TimeMs(0),
        };
        let epoch = AttemptEpoch(2);
        let running = EventKind::AttemptRunning { job, unit, epoch };
        let seen = |kinds: &[(u64, &EventKind)]| EpisodeEvents {
            episode: &episode,
            until_us: 9_000,
            kinds: kinds
                .iter()
                .map(|(at, kind)| (*at, (*kind).clone()))
                .collect(),
        };
        let silent = EventKind::HostHealthChanged {
            host: HostId(1),
            name: "node01".to_owned(),
            health: HostHealth::Lost,
            one_way: false,
        };
        assert!(!has_effect(&seen(&[(2_000, &silent)])));
        assert!(!has_effect(&seen(&[(2_000, &requeued)])), "by chance");
        let lost = seen(&[(2_000, &silent), (2_000, &requeued)]);
        assert!(has_effect(&lost));
        assert_eq!(displaced(&lost), (vec![], 1));
        let back = seen(&[(2_000, &requeued), (8_000, &running)]);
        assert_eq!(displaced(&back), (vec![7_000], 0));
        let cancelled = EventKind::JobCancelRequested {
            job,
            author: String::new(),
            reason: String::new(),
        };
        let gone = seen(&[(2_000, &requeued), (3_000, &cancelled)]);
        assert_eq!(displaced(&gone), (vec![], 0));
    }

    #[test]
    fn a_gpu_is_closed_once_nothing_may_be_placed_there() {
        let episode = Episode {
            gpu: Some(GpuUuid(7)),
            ..Episode::of(Fault::GpuFaulted)
        };
        let changed = |gpu, to| EventKind::HealthChanged {
            component: Component::Gpu(GpuUuid(gpu)),
            host: HostId(1),
            host_name: "node01".to_owned(),
            from: Phase::Healthy,
            to,
            rule: "xid".to_owned(),
            evidence: String::new(),
        };
        let kinds = vec![
            (1_100, changed(8, Phase::Blocked)),
            (1_200, changed(7, Phase::Suspect)),
            (1_300, changed(7, Phase::Blocked)),
        ];
        let seen = EpisodeEvents {
            episode: &episode,
            until_us: 9_000,
            kinds,
        };
        assert_eq!(closed(&seen), Some(300));
        assert!(has_effect(&seen));
        // Events of another GPU are not an effect of the fault.
        let others = EpisodeEvents {
            kinds: seen.kinds[..1].to_vec(),
            ..seen
        };
        assert!(!has_effect(&others));
    }

    #[test]
    fn a_storm_counts_only_if_something_was_preempted() {
        let episode = Episode::of(Fault::PreemptStorm);
        let counts = [StopReason::Cancelled, StopReason::Preempted].map(|reason| {
            let stopping = EventKind::AttemptStopping {
                job: JobId(1),
                unit: UnitIndex(0),
                epoch: AttemptEpoch(2),
                cause: StopCause::new(reason, String::new()),
            };
            has_effect(&EpisodeEvents {
                episode: &episode,
                until_us: 9_000,
                kinds: vec![(2_000, stopping)],
            })
        });
        assert_eq!(counts, [false, true]);
    }

    #[test]
    fn a_leader_that_dies_with_a_host_counts_once_another_leads_and_work_was_displaced() {
        let episode = Episode {
            target: "replica-1 and node02".to_owned(),
            ..Episode::of(Fault::LeaderAndHostKilled)
        };
        let led = EventKind::LeadershipStarted {
            replica: ReplicaId(2),
            epoch: LeadershipEpoch(7),
        };
        let health = |health| EventKind::HostHealthChanged {
            host: HostId(2),
            name: "node02".to_owned(),
            health,
            one_way: false,
        };
        let requeued = EventKind::UnitRequeued {
            job: JobId(1),
            unit: UnitIndex(0),
            reason: RestartReason::Infra,
            not_before: TimeMs(0),
        };
        let seen = |kinds: &[(u64, &EventKind)]| EpisodeEvents {
            episode: &episode,
            until_us: 9_000,
            kinds: { kinds.iter() }
                .map(|(at, kind)| (*at, (*kind).clone()))
                .collect(),
        };
        let (suspect, gone) = (health(HostHealth::Suspect), health(HostHealth::Lost));
        assert!(!has_effect(&seen(&[(2_000, &requeued)])));
        assert!(!has_effect(&seen(&[(2_000, &led)])));
        let whole = [
            (2_000, &led),
            (3_000, &suspect),
            (6_000, &gone),
            (6_100, &requeued),
        ];
        assert!(has_effect(&seen(&whole)));
        assert_eq!(lost(&seen(&whole)), Some(5_000));
        assert_eq!(lost(&seen(&whole[..2])), None);
        // A host other than the target.
        let other = Episode {
            target: "replica-1 and node03".to_owned(),
            ..Episode::of(Fault::LeaderAndHostKilled)
        };
        let others = EpisodeEvents {
            episode: &other,
            ..seen(&whole)
        };
        assert_eq!(lost(&others), None);
    }

    #[test]
    fn a_full_disk_or_a_storm_without_its_effect_does_not_count() {
        for fault in [
            Fault::LeaderDiskFull,
            Fault::SnapshotStorm,
            Fault::DataWiped,
            Fault::MembersChanged,
        ] {
            let counts = [None, Some(false), Some(true)].map(|effect| {
                let episode = Episode {
                    effect,
                    ..Episode::of(fault)
                };
                has_effect(&EpisodeEvents {
                    episode: &episode,
                    until_us: 9_000,
                    kinds: Vec::new(),
                })
            });
            assert_eq!(counts, [false, false, true]);
        }
    }
}
