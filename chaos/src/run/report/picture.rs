//! The run as a picture: who led, what was broken, when nobody could write, and who held which GPU.

use std::collections::BTreeMap;

use muster_core::event::EventKind;
use muster_core::ids::{AttemptEpoch, GpuUuid};
use muster_simulate::report::{Axis, Picture};

use crate::run::Fault;
use crate::run::judge::Evidence;
use crate::run::nemesis::Episode;

/// Time without an acknowledged write that is drawn, in microseconds.
const GAP_US_MIN: u64 = 250_000;
/// Rows of replicas: at least those of a cluster of our own, at most so many of another one.
const REPLICAS_MIN: usize = 3;
const REPLICAS_MAX: usize = 16;
/// How replicas are called, before their id.
const REPLICA_PREFIX: &str = "replica-";
/// Height of a row with a name, and of one of the many GPUs, in pixels.
const ROW_HEIGHT: f64 = 22.0;
const GPU_ROW_HEIGHT: f64 = 7.0;
/// Colours of what is drawn.
const LEADER: &str = "hsl(211 58% 52%)";
const FAULT: &str = "hsl(4 70% 55%)";
const REPAIR: &str = "hsl(40 80% 60%)";
const GAP: &str = "hsl(4 70% 40%)";
const DOWN: &str = "hsl(0 0% 25%)";
const STILL: &str = "hsl(0 0% 60%)";
const CUT: &str = "hsl(285 45% 60%)";
/// Hue between one job's colour and the next, in degrees: the golden angle keeps neighbours apart.
const HUE_STEP: f64 = 137.508;

/// What the colours mean.
pub(super) const LEGEND: [(&str, &str); 7] = [
    ("leads", LEADER),
    ("does not run", DOWN),
    ("stands still", STILL),
    ("cut off", CUT),
    ("broken", FAULT),
    ("repaired, not yet whole", REPAIR),
    ("no write acknowledged", GAP),
];

/// Replicas with what was done to them, faults and gaps, a row each.
pub(super) fn of_cluster(evidence: &Evidence, (from_us, to_us): (u64, u64)) -> String {
    let seconds = |at_us: u64| at_us.saturating_sub(from_us) as f64 / 1e6;
    let led = leaderships(evidence, to_us);
    let replicas = led.iter().map(|(replica, ..)| replica + 1).max();
    let replicas = replicas.unwrap_or(0).max(REPLICAS_MIN);
    let rows = replicas + 2;
    let axis = Axis::linear("seconds", seconds(to_us));
    let mut picture = Picture::new(axis, Axis::rows(rows), rows as f64 * ROW_HEIGHT);
    for replica in 0..replicas {
        picture.row_name(replica, &format!("replica {}", replica + 1));
    }
    for (replica, began_us, ended_us) in led {
        let span = (seconds(began_us), seconds(ended_us));
        picture.bar(replica, span, LEADER, "leads");
    }
    for episode in &evidence.episodes {
        if let Some((replica, colour)) = struck(episode).filter(|(row, _)| *row < replicas) {
            let span = (seconds(episode.began_us), seconds(episode.healed_us));
            picture.bar(replica, span, colour, episode.fault.words());
        }
    }
    picture.row_name(replicas, "faults");
    for episode in &evidence.episodes {
        let title = format!("{}: {}", episode.fault.words(), episode.target);
        let [began, healed, ended] =
            [episode.began_us, episode.healed_us, episode.ended_us()].map(seconds);
        picture.bar(replicas, (began, healed), FAULT, &title);
        picture.bar(replicas, (healed, ended), REPAIR, &title);
    }
    picture.row_name(replicas + 1, "gaps");
    let written = evidence.operations.iter().filter(|it| it.is_write());
    let ends: Vec<u64> = written.map(|it| it.completed_us).collect();
    for (before, after) in ends.iter().zip(ends.iter().skip(1)) {
        if after - before >= GAP_US_MIN {
            let title = format!("{:.2} s without a write", (after - before) as f64 / 1e6);
            let span = (seconds(*before), seconds(*after));
            picture.bar(replicas + 1, span, GAP, &title);
        }
    }
    picture.finish()
}

/// The replica that a fault silences, by its position, and the colour for how; none if it silences none.
fn struck(episode: &Episode) -> Option<(usize, &'static str)> {
    let colour = match episode.fault {
        Fault::LeaderKilled
        | Fault::FollowerKilled
        | Fault::LeaderAndHostKilled
        | Fault::SyncFailed
        | Fault::SnapshotStorm => DOWN,
        Fault::LeaderPaused => STILL,
        Fault::LeaderDeaf | Fault::LeaderMute | Fault::LeaderParted => CUT,
        _ => return None,
    };
    let name = episode.target.split(' ').next()?;
    let id: usize = name.strip_prefix(REPLICA_PREFIX)?.parse().ok()?;
    Some((id.checked_sub(1)?, colour))
}

/// Who led from when to when: position, then microseconds.
fn leaderships(evidence: &Evidence, to_us: u64) -> Vec<(usize, u64, u64)> {
    let began: Vec<(u64, usize)> = evidence
        .earliest()
        .kinds_since(0)
        .filter_map(|(at_us, kind)| match kind {
            EventKind::LeaderBegan { replica, .. } => {
                let position = usize::try_from(replica.get()).ok()?.checked_sub(1)?;
                (position < REPLICAS_MAX).then_some((at_us, position))
            }
            _ => None,
        })
        .collect();
    let ends = began.iter().skip(1).map(|(at_us, _)| *at_us).chain([to_us]);
    began
        .iter()
        .zip(ends)
        .map(|((began_us, replica), ended_us)| (*replica, *began_us, ended_us))
        .collect()
}

/// Every GPU that a task ever held, a row each, as the tasks wrote it down.
pub(super) fn of_gpus(evidence: &Evidence, (from_us, to_us): (u64, u64)) -> String {
    let seconds = |at_us: u64| at_us.saturating_sub(from_us) as f64 / 1e6;
    let mut by_gpu: BTreeMap<GpuUuid, Vec<usize>> = BTreeMap::new();
    let holdings = &evidence.book.holdings;
    for (number, holding) in holdings.iter().enumerate() {
        if let Some(gpu) = holding.gpu {
            by_gpu.entry(gpu).or_default().push(number);
        }
    }
    let earliest = evidence.earliest();
    let ends: BTreeMap<AttemptEpoch, u64> = earliest
        .kinds_since(0)
        .filter_map(|(at_us, kind)| match kind {
            EventKind::AttemptEnded { epoch, .. } => Some((epoch, at_us)),
            _ => None,
        })
        .collect();
    let rows = by_gpu.len().max(1);
    let axis = Axis::linear("seconds", seconds(to_us));
    let mut picture = Picture::new(axis, Axis::rows(rows), rows as f64 * GPU_ROW_HEIGHT);
    for (row, numbers) in by_gpu.values().enumerate() {
        for (position, number) in numbers.iter().enumerate() {
            let holding = &holdings[*number];
            // A task that was killed held it until its attempt had ended or the next one took it, at most.
            let next = numbers.get(position + 1);
            let next = next.map(|next| holdings[*next].taken_us);
            let ended = ends.get(&holding.epoch).copied();
            let by_others = [next, ended].into_iter().flatten().min();
            let end_us = holding.given_us.or(by_others).unwrap_or(to_us);
            let title = format!(
                "job {} task {} attempt {}",
                holding.job, holding.task, holding.epoch
            );
            let hue = HUE_STEP * holding.job.get() as f64 % 360.0;
            let colour = format!("hsl({hue:.0} 55% 55%)");
            let span = (seconds(holding.taken_us), seconds(end_us));
            picture.bar(row, span, &colour, &title);
        }
    }
    picture.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_silences_a_replica_is_drawn_in_its_own_row() {
        let struck_by = |fault, target: &str| {
            struck(&Episode {
                target: target.to_owned(),
                ..Episode::of(fault)
            })
        };
        let both = struck_by(Fault::LeaderAndHostKilled, "replica-3 and node02");
        assert_eq!(both, Some((2, DOWN)));
        assert_eq!(
            struck_by(Fault::LeaderPaused, "replica-1"),
            Some((0, STILL))
        );
        assert_eq!(struck_by(Fault::LeaderMute, "replica-2"), Some((1, CUT)));
        assert_eq!(struck_by(Fault::HostKilled, "node01"), None);
        assert_eq!(struck_by(Fault::LeaderKilled, "?"), None);
    }
}
