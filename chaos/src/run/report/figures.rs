//! What a run measured: for each kind of fault, how long it kept users from writing and tasks from running.

use std::collections::BTreeMap;

use muster_core::event::EventKind;
use muster_core::ids::{JobId, UnitIndex};
use serde::Serialize;

use crate::run::Fault;
use crate::run::history::Operation;
use crate::run::judge::Evidence;
use crate::run::load::Heard;
use crate::run::nemesis::Episode;

/// Microseconds of a millisecond.
const MS_US: u64 = 1_000;

/// Some durations, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// How many.
    pub count: usize,
    /// The median, by nearest rank.
    pub p50_ms: u64,
    /// The 99th percentile, by nearest rank: the longest of fewer than a hundred.
    pub p99_ms: u64,
    /// The longest.
    pub max_ms: u64,
}

impl Spread {
    /// Of these durations; none without any.
    fn of(mut durations_ms: Vec<u64>) -> Option<Self> {
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

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FaultFigures {
    /// Which.
    pub fault: Fault,
    /// How often it was made with enough load.
    pub made: usize,
    /// How often there was too little load for it to prove anything.
    pub without_load: usize,
    /// Longest time without an acknowledged write, from each fault until the cluster was whole.
    pub unwritable: Option<Spread>,
    /// Time from each fault until an attempt was placed: where the leader is hit, by the next one (P1).
    pub placed: Option<Spread>,
    /// Time from each fault until what it displaced ran again; only what runs again before the next fault.
    pub back: Option<Spread>,
    /// Time from each repair until the cluster was whole.
    pub whole: Option<Spread>,
}

/// The figures of every kind of fault that was made, in their order.
pub(super) fn of_faults(evidence: &Evidence) -> Vec<FaultFigures> {
    let mut kinds: BTreeMap<Fault, Vec<&Episode>> = BTreeMap::new();
    for episode in &evidence.episodes {
        kinds.entry(episode.fault).or_default().push(episode);
    }
    let kinds = kinds.into_iter();
    kinds
        .map(|(fault, episodes)| of_fault(fault, &episodes, evidence))
        .collect()
}

fn of_fault(fault: Fault, episodes: &[&Episode], evidence: &Evidence) -> FaultFigures {
    let valid: Vec<&Episode> = episodes
        .iter()
        .copied()
        .filter(|it| it.has_load())
        .collect();
    let spread = |duration_us: &dyn Fn(&Episode) -> Option<u64>| {
        let durations = valid.iter().filter_map(|it| duration_us(it));
        Spread::of(durations.map(|it| it / MS_US).collect())
    };
    let earliest = &evidence.earliest();
    let back = || {
        let durations = valid.iter().flat_map(|it| displaced(it, earliest));
        Spread::of(durations.map(|it| it / MS_US).collect())
    };
    FaultFigures {
        fault,
        made: valid.len(),
        without_load: episodes.len() - valid.len(),
        unwritable: spread(&|it| unwritable(it, &evidence.operations)),
        placed: spread(&|it| placed(it, earliest)),
        back: fault.displaces().then(back).flatten(),
        whole: spread(&|it| Some(it.whole_us? - it.healed_us)),
    }
}

/// The longest time between two acknowledged writes, as far as it lies within an episode, in microseconds.
fn unwritable(episode: &Episode, operations: &[Operation]) -> Option<u64> {
    let written = operations.iter().filter(|it| it.is_write());
    let ends: Vec<u64> = written.map(|it| it.completed_us).collect();
    let gaps = ends.iter().zip(ends.iter().skip(1));
    let within = gaps.filter(|(from, to)| **to > episode.began_us && **from < episode.ended_us());
    within
        .map(|(from, to)| to - (*from).max(episode.began_us))
        .max()
}

/// Time until something was placed, in microseconds; by another leader, if the fault ends a leadership.
fn placed(episode: &Episode, heard: &Heard) -> Option<u64> {
    let mut is_led = !episode.fault.ends_leadership();
    for (at_us, kind) in kinds_since(heard, episode.began_us) {
        match kind {
            EventKind::LeaderBegan { .. } => is_led = true,
            EventKind::AttemptPlaced { .. } if is_led => return Some(at_us - episode.began_us),
            _ => {}
        }
    }
    None
}

/// Times until units that were displaced ran again, in microseconds.
fn displaced(episode: &Episode, heard: &Heard) -> Vec<u64> {
    let mut waiting: BTreeMap<(JobId, UnitIndex), ()> = BTreeMap::new();
    let mut back = Vec::new();
    for (at_us, kind) in kinds_since(heard, episode.began_us) {
        match kind {
            EventKind::TaskLost { job, unit, .. } | EventKind::UnitRequeued { job, unit, .. }
                if at_us <= episode.ended_us() =>
            {
                waiting.insert((job, unit), ());
            }
            EventKind::AttemptRunning { job, unit, .. } => {
                if waiting.remove(&(job, unit)).is_some() {
                    back.push(at_us - episode.began_us);
                }
            }
            _ => {}
        }
        if at_us > episode.ended_us() && waiting.is_empty() {
            break;
        }
    }
    back
}

/// Events from a time on, with the time at which each was heard.
pub(super) fn kinds_since(heard: &Heard, from_us: u64) -> impl Iterator<Item = (u64, EventKind)> {
    let since = heard
        .deliveries
        .iter()
        .filter(move |it| it.at_us >= from_us);
    since.flat_map(|delivery| {
        // Kinds that this build does not know are none that are counted here.
        let kinds = delivery.events.iter();
        kinds.filter_map(|it| Some((delivery.at_us, EventKind::try_from(it.clone()).ok()?)))
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_core::ids::Revision;

    use super::*;
    use crate::run::history::{Answer, Call, Outcome};

    #[test]
    fn percentiles_are_durations_that_were_measured() {
        assert_eq!(Spread::of(Vec::new()), None);
        let spread = Spread::of((1..=200).rev().collect()).unwrap();
        assert_eq!(
            (spread.p50_ms, spread.p99_ms, spread.max_ms),
            (100, 198, 200)
        );
        let few = Spread::of(vec![5, 9]).unwrap();
        assert_eq!((few.p50_ms, few.p99_ms, few.max_ms), (5, 9, 9));
    }

    #[test]
    fn a_gap_counts_from_the_fault_on() {
        let write = |completed_us| Operation {
            user: 0,
            call: Call::Cancel(JobId(1)),
            invoked_us: completed_us - 1,
            completed_us,
            outcome: Outcome::Done(Answer {
                job: JobId(1),
                revision: Revision(1),
                phase: None,
            }),
        };
        let episode = Episode {
            fault: Fault::LeaderKilled,
            target: String::new(),
            load_per_s: 100.0,
            began_us: 1_000,
            healed_us: 5_000,
            whole_us: Some(6_000),
            odd: Vec::new(),
        };
        let operations = [100, 900, 4_000, 4_100, 9_000].map(write);
        // From the fault at 1,000 to 4,000; the gap before it does not count, the one at the end lasts longer.
        assert_eq!(unwritable(&episode, &operations[..4]), Some(3_000));
        assert_eq!(unwritable(&episode, &operations), Some(4_900));
        assert_eq!(unwritable(&episode, &operations[..2]), None);
    }
}
