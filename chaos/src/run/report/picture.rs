//! Timeline of a run as a picture: leaders, faults, times without writes, and holders of each GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use muster_engine::state::State;
use muster_model::event::EventKind;
use muster_model::ids::{AttemptEpoch, GpuUuid};
use muster_text::{Axis, Picture, colour};

use crate::cluster::Fault;
use crate::run::checkers::Evidence;
use crate::run::clock::RunSpan;
use crate::run::history::Operation;
use crate::run::nemesis::Episode;
use crate::run::options::REPLICAS;

/// Minimum time without an acknowledged write that is drawn, in microseconds.
const GAP_US_MIN: u64 = 250_000;
/// Replicas that always have a row: the initial ones of a cluster started by the run.
const FOUNDERS: RangeInclusive<u64> = 1..=REPLICAS as u64;
/// Prefix of replica names, before the id.
const REPLICA_PREFIX: &str = "replica-";
/// Height of a row with a name, and of a GPU's row, in pixels.
const ROW_HEIGHT: f64 = 22.0;
const GPU_ROW_HEIGHT: f64 = 7.0;
/// Colours of the elements.
const LEADER: &str = "hsl(211 58% 52%)";
const FAULT: &str = "hsl(4 70% 55%)";
const REPAIR: &str = "hsl(40 80% 60%)";
const GAP: &str = "hsl(4 70% 40%)";
const DOWN: &str = "hsl(0 0% 25%)";
const STILL: &str = "hsl(0 0% 60%)";
const CUT: &str = "hsl(285 45% 60%)";
const OTHERWISE: &str = "hsl(175 45% 45%)";

/// Legend of the colours.
pub(super) const LEGEND: [(&str, &str); 8] = [
    ("leads", LEADER),
    ("not running", DOWN),
    ("paused", STILL),
    ("cut off", CUT),
    ("without its data, its disk full, or replaced", OTHERWISE),
    ("broken", FAULT),
    ("repaired, not yet recovered", REPAIR),
    ("no write acknowledged", GAP),
];

/// Draws a row for each replica with its faults, one for the faults and one for the gaps.
pub(super) fn of_cluster(evidence: &Evidence, RunSpan { from_us, to_us }: RunSpan) -> String {
    let seconds = |at_us: u64| at_us.saturating_sub(from_us) as f64 / 1e6;
    let led = leaderships(evidence, to_us);
    let ids = rows_of(&led, &evidence.episodes);
    let replicas = ids.len();
    let rows = replicas + 2;
    let axis = Axis::linear("seconds", seconds(to_us));
    let mut picture = Picture::new(axis, Axis::rows(rows), rows as f64 * ROW_HEIGHT);
    for (row, id) in ids.iter().enumerate() {
        picture.row_name(row, &format!("replica {id}"));
        for (_, began_us, ended_us) in led.iter().filter(|(leader, ..)| leader == id) {
            let span = seconds(*began_us)..seconds(*ended_us);
            picture.bar(row, span, LEADER, "leads");
        }
        for episode in &evidence.episodes {
            if let Some(colour) = struck(episode, *id) {
                let span = seconds(episode.began_us)..seconds(episode.healed_us);
                picture.bar(row, span, colour, episode.fault.name());
            }
        }
    }
    picture.row_name(replicas, "faults");
    for episode in &evidence.episodes {
        let title = format!("{}: {}", episode.fault.name(), episode.target);
        let [began, healed, ended] =
            [episode.began_us, episode.healed_us, episode.ended_us()].map(seconds);
        picture.bar(replicas, began..healed, FAULT, &title);
        picture.bar(replicas, healed..ended, REPAIR, &title);
    }
    picture.row_name(replicas + 1, "gaps");
    for (before, after) in gaps(&evidence.operations, from_us, evidence.calls_until_us) {
        let title = format!("{:.2} s without a write", (after - before) as f64 / 1e6);
        let span = seconds(before)..seconds(after);
        picture.bar(replicas + 1, span, GAP, &title);
    }
    picture.finish()
}

/// Gaps between acknowledged writes; the gap after the last write lasts until the last call.
fn gaps(operations: &[Operation], from_us: u64, until_us: u64) -> Vec<(u64, u64)> {
    let written = operations.iter().filter(|it| it.is_write());
    let mut times: Vec<u64> = written.map(|it| it.completed_us).collect();
    let last_us = times.last().copied();
    if last_us.is_none() {
        times.push(from_us);
    }
    times.push(until_us.max(last_us.unwrap_or(from_us)));
    let pairs = times.iter().zip(times.iter().skip(1));
    let long = pairs.filter(|(before, after)| *after - *before >= GAP_US_MIN);
    long.map(|(before, after)| (*before, *after)).collect()
}

/// Ids of the replicas with a row: initial ones of a cluster started by the run, leaders, and targets of
/// faults.
fn rows_of(led: &[(u64, u64, u64)], episodes: &[Episode]) -> BTreeSet<u64> {
    let leaders = led.iter().map(|(id, ..)| *id);
    let hit = episodes.iter().filter_map(target_of);
    FOUNDERS.chain(leaders).chain(hit).collect()
}

/// Colour of a fault's effect on a replica; `None` if the fault does not silence it.
fn struck(episode: &Episode, id: u64) -> Option<&'static str> {
    let colour = match episode.fault {
        // All of them, one after the other.
        Fault::RollingRestart | Fault::RollingUpgrade => return Some(OTHERWISE),
        Fault::LeaderKilled
        | Fault::FollowerKilled
        | Fault::LeaderAndHostKilled
        | Fault::SyncFailed
        | Fault::SnapshotStorm => DOWN,
        Fault::LeaderFrozen => STILL,
        Fault::LeaderCut(_) | Fault::LeaderIsolated => CUT,
        Fault::DataWiped | Fault::LeaderDiskFull | Fault::MembersChanged => OTHERWISE,
        _ => return None,
    };
    (target_of(episode) == Some(id)).then_some(colour)
}

/// Id of the replica that a fault hits, if it hits one.
fn target_of(episode: &Episode) -> Option<u64> {
    let name = episode.target.split(' ').next()?;
    name.strip_prefix(REPLICA_PREFIX)?.parse().ok()
}

/// Terms of leadership: id, start and end in microseconds.
fn leaderships(evidence: &Evidence, to_us: u64) -> Vec<(u64, u64, u64)> {
    let began: Vec<(u64, u64)> = evidence
        .earliest()
        .kinds_since(0)
        .filter_map(|(at_us, kind)| match kind {
            EventKind::LeadershipStarted { replica, .. } => Some((at_us, replica.get())),
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

/// Location of a GPU: its host, if the cluster's state is known, and its index there.
type NodeRef<'a> = (&'a str, u32);

fn places(state: &State) -> BTreeMap<GpuUuid, NodeRef<'_>> {
    let hosts = state.hosts.values();
    let gpus = hosts.flat_map(|host| host.gpus.iter().map(|gpu| (&*host.name, gpu)));
    gpus.map(|(host, gpu)| (gpu.uuid, (host, gpu.index)))
        .collect()
}

/// Draws a row for every GPU in the tasks' ledger, grouped by host.
pub(super) fn of_gpus(evidence: &Evidence, RunSpan { from_us, to_us }: RunSpan) -> String {
    let seconds = |at_us: u64| at_us.saturating_sub(from_us) as f64 / 1e6;
    let places = places(&evidence.log.state);
    let mut by_gpu: BTreeMap<(NodeRef<'_>, GpuUuid), Vec<usize>> = BTreeMap::new();
    let holdings = &evidence.ledger.holdings;
    for (number, holding) in holdings.iter().enumerate() {
        if let Some(gpu) = holding.gpu {
            let place = places.get(&gpu).copied().unwrap_or_default();
            by_gpu.entry((place, gpu)).or_default().push(number);
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
    let mut named = "";
    for (row, (((host, index), gpu), numbers)) in by_gpu.iter().enumerate() {
        if *host != named {
            picture.row_name(row, host);
            named = host;
        }
        let at = if host.is_empty() {
            gpu.to_string()
        } else {
            format!("{host} GPU {index}")
        };
        for (position, number) in numbers.iter().enumerate() {
            let holding = &holdings[*number];
            // A killed task held it at most until its attempt had ended or the next one took it.
            let next = numbers.get(position + 1);
            let next = next.map(|next| holdings[*next].taken_us);
            let ended = ends.get(&holding.epoch).copied();
            let by_others = [next, ended].into_iter().flatten().min();
            let end_us = holding.given_us.or(by_others).unwrap_or(to_us);
            let title = format!(
                "{at}: job {} task {} attempt {}",
                holding.job, holding.task, holding.epoch
            );
            let span = seconds(holding.taken_us)..seconds(end_us);
            picture.bar(row, span, &colour(holding.job.get() as usize), &title);
        }
    }
    picture.finish()
}

#[cfg(test)]
mod tests {
    use muster_harness::Cluster;
    use muster_model::ids::{JobId, Revision, TaskIndex};

    use super::*;
    use crate::cluster::Direction;
    use crate::run::history::{Answer, Call, Outcome};
    use crate::run::lock_ledger::{LockLedger, LockRecord};
    use crate::run::replay::ReplayedLog;

    #[test]
    fn faults_that_silence_a_replica_have_a_row_of_their_own() {
        let struck_by = |fault, target: &str, id| {
            let target = target.to_owned();
            let episode = Episode {
                target,
                ..Episode::of(fault)
            };
            struck(&episode, id)
        };
        let both = |id| struck_by(Fault::LeaderAndHostKilled, "replica-3 and node02", id);
        assert_eq!([both(2), both(3)], [None, Some(DOWN)]);
        let paused = struck_by(Fault::LeaderFrozen, "replica-1", 1);
        assert_eq!(paused, Some(STILL));
        assert_eq!(
            struck_by(Fault::LeaderCut(Direction::Out), "replica-2", 2),
            Some(CUT)
        );
        assert_eq!(struck_by(Fault::HostKilled, "node01", 1), None);
        assert_eq!(struck_by(Fault::LeaderKilled, "?", 1), None);
        let wiped = struck_by(Fault::DataWiped, "replica-2", 2);
        assert_eq!(wiped, Some(OTHERWISE));
        assert_eq!(struck_by(Fault::RollingRestart, "all", 3), Some(OTHERWISE));
    }

    #[test]
    fn every_replica_that_led_or_was_hit_has_a_row() {
        let hit = Episode {
            target: "replica-19".to_owned(),
            ..Episode::of(Fault::MembersChanged)
        };
        let rows = rows_of(&[(21, 0, 9)], &[hit]);
        assert_eq!(rows.into_iter().collect::<Vec<_>>(), [1, 2, 3, 19, 21]);
    }

    #[test]
    fn a_gap_after_the_last_write_lasts_until_nobody_called_any_more() {
        let write = |completed_us| Operation {
            user: 0,
            call: Call::Cancel(JobId(1)),
            invoked_us: completed_us,
            completed_us,
            via: None,
            outcome: Outcome::Done(Answer {
                job: JobId(1),
                revision: Revision(1),
                phase: None,
            }),
        };
        let operations = [1_000_000, 1_100_000, 2_000_000].map(write);
        let first = (1_100_000, 2_000_000);
        assert_eq!(gaps(&operations, 0, 2_100_000), [first]);
        let last = (2_000_000, 9_000_000);
        assert_eq!(gaps(&operations, 0, 9_000_000), [first, last]);
        assert_eq!(gaps(&[], 0, 9_000_000), [(0, 9_000_000)]);
    }

    #[test]
    fn gpus_of_a_host_are_together_under_its_name() {
        let state = Cluster::with_hosts(2, 2).state;
        let gpus = state.hosts.values().flat_map(|host| &host.gpus);
        let holdings = gpus.map(|gpu| LockRecord {
            gpu: Some(gpu.uuid),
            job: JobId(1),
            task: TaskIndex(0),
            epoch: AttemptEpoch(5),
            taken_us: 1,
            given_us: Some(2),
        });
        let evidence = Evidence {
            operations: Vec::new(),
            watched: Vec::new(),
            calls_until_us: 0,
            last: Revision(0),
            ledger: LockLedger {
                holdings: holdings.collect(),
                conflicts: Vec::new(),
            },
            log: ReplayedLog {
                state,
                ..ReplayedLog::default()
            },
            journals: Vec::new(),
            episodes: Vec::new(),
        };
        let span = RunSpan {
            from_us: 0,
            to_us: 10,
        };
        let picture = of_gpus(&evidence, span);
        let at = |name: &str| picture.match_indices(&format!(">{name}</text>")).count();
        assert_eq!((at("node-0001"), at("node-0002")), (1, 1), "{picture}");
        assert!(picture.contains("node-0002 GPU 1: job 1 task 0 attempt 5"));
        // If the hosts are unknown, the GPUs are drawn nevertheless.
        let outside = Evidence {
            log: ReplayedLog::default(),
            ..evidence
        };
        assert!(of_gpus(&outside, span).contains(": job 1 task 0 attempt 5"));
    }
}
