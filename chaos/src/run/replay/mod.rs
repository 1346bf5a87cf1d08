//! The replicated log, replayed entry by entry: the reference for all checkers.
//!
//! The users' history and the watchers' events are compared with it. A finding here cannot be a bug of a
//! service, a cache or a stream, only of `apply` itself, which the audit checks.

mod observed_read;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use muster_engine::apply::apply;
use muster_engine::audit::audit;
use muster_engine::state::State;
use muster_model::event::{Event, EventKind};
use muster_model::ids::{AttemptEpoch, GpuUuid, JobId, LeadershipEpoch, Revision, UnitIndex};
use muster_model::rejection::Rejection;
use muster_model::time::TimeMs;
use muster_proto::v1;
use muster_raft_store::{OfflineLog, StoredEntry};

use crate::checkers::sampling_interval;
use crate::cluster::CLUSTER_ID;
use crate::run::RunError;
use crate::run::checkers::{Invariant, Violation};
use crate::run::options::LAG_ENTRIES_MAX;
use crate::run::state_snapshots::StateSnapshot;

pub(super) use observed_read::Observation;

/// Entries between two audits of the whole state, unless it is large.
const AUDIT_EVERY_ENTRIES: u64 = 50;

/// A placed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    /// The owning job.
    pub(super) job: JobId,
    /// Index of the unit within its job.
    pub(super) unit: UnitIndex,
    /// Number of the attempt within its unit.
    pub(super) number: u32,
    /// GPUs granted to it.
    pub(super) gpus: BTreeSet<GpuUuid>,
}

/// The replayed log of a run.
#[derive(Debug, Default)]
pub(super) struct ReplayedLog {
    /// Revision before the first known entry: the log up to it was purged behind a snapshot.
    pub(super) base: Revision,
    /// The final state.
    pub(super) state: State,
    /// Revision up to which events are unknown: the state at the beginning of the log had dropped them.
    pub(super) forgotten: Revision,
    /// The events of each revision after `forgotten` that has any.
    pub(super) events: BTreeMap<Revision, Vec<v1::Event>>,
    /// Every attempt that was placed after `base`.
    pub(super) grants: BTreeMap<AttemptEpoch, Grant>,
    /// Number of commands replayed.
    pub(super) commands: u64,
    /// Number of refused commands of deposed leaders.
    pub(super) stale: u64,
    /// Number of entries compared between several replicas.
    pub(super) compared: u64,
    /// Number of reads compared.
    pub(super) reads: u64,
    /// Number of submissions and cancels compared.
    pub(super) writes: u64,
    /// Number of states of replicas compared.
    pub(super) states: u64,
    /// Number of audits of the whole state.
    pub(super) audits: u64,
    /// Violations found so far.
    pub(super) violations: Vec<Violation>,
}

/// Reads the replicas' data and replays the longest log. `pictures`: states sent by the replicas.
///
/// # Errors
/// If a replica's data cannot be read.
pub(super) fn replay(
    folders: &[PathBuf],
    mut sights: Vec<Observation>,
    pictures: Vec<StateSnapshot>,
) -> Result<ReplayedLog, RunError> {
    let mut remains = Vec::new();
    for folder in folders {
        remains.push(OfflineLog::<State>::read(folder, CLUSTER_ID)?);
    }
    let committed = committed(&remains);
    let (chosen, lost) = account(&remains, committed)?;
    sights.sort_by_key(|sight| sight.revision);
    let mut replay = Replay {
        truth: ReplayedLog {
            base: chosen.base.revision,
            forgotten: chosen.base.events.compacted(),
            events: kept_events(&chosen.base),
            state: chosen.base.clone(),
            violations: lost.into_iter().collect(),
            ..ReplayedLog::default()
        },
        sights: sights.into_iter().peekable(),
        pictures,
    };
    replay.compare(&remains, chosen, committed);
    replay.skip_unknown();
    let entries = chosen.entries.iter();
    let mut audited = 0;
    for (number, entry) in (1..).zip(entries.take_while(|entry| entry.index <= committed)) {
        replay.apply(entry);
        let pause = AUDIT_EVERY_ENTRIES * sampling_interval(&replay.truth.state);
        if pause <= number - audited {
            audited = number;
            replay.audit();
        }
    }
    replay.audit();
    replay.report_unseen();
    replay.report_unmade(committed);
    Ok(replay.truth)
}

/// Selects the longest log: of those that reach the newest committed entry the one that begins first. If
/// all are whole from the first entry on and none reaches it, something committed is lost, and the rest is
/// checked.
fn account(
    remains: &[OfflineLog<State>],
    committed: u64,
) -> Result<(&OfflineLog<State>, Option<Violation>), RunError> {
    let whole = remains
        .iter()
        .filter(|it| it.range().is_some_and(|range| *range.end() >= committed))
        .min_by_key(|it| it.range().map_or(u64::MAX, |range| *range.start()));
    if let Some(whole) = whole {
        return Ok((whole, None));
    }
    let text = format!("no replica has log entry {committed}, which was committed");
    // A purged log may end with its snapshot.
    let is_cut = |it: &OfflineLog<State>| it.base.revision > Revision(0);
    let longest = remains
        .iter()
        .max_by_key(|it| it.range().map(|range| *range.end()));
    match longest {
        Some(longest) if !remains.iter().any(is_cut) => {
            let invariant = Invariant::Durability;
            Ok((longest, Some(Violation { invariant, text })))
        }
        _ => Err(RunError::Harness(text)),
    }
}

/// Newest committed index: the newest recorded by any replica, or the newest beyond it that a majority has.
/// The records may be behind.
fn committed(remains: &[OfflineLog<State>]) -> u64 {
    let noted = remains.iter().filter_map(|it| it.committed).max();
    let mut committed = noted.unwrap_or(0);
    loop {
        let mut holders: BTreeMap<u64, usize> = BTreeMap::new();
        for one in remains {
            let next = one
                .entries
                .binary_search_by_key(&(committed + 1), |it| it.index);
            if let Ok(at) = next {
                *holders.entry(one.entries[at].digest).or_default() += 1;
            }
        }
        if holders.values().all(|count| 2 * count <= remains.len()) {
            return committed;
        }
        committed += 1;
    }
}

/// Events retained by a state, of revisions that it has in full.
fn kept_events(state: &State) -> BTreeMap<Revision, Vec<v1::Event>> {
    let kept = state.events.kept_after(state.events.compacted());
    kept.map(|(revision, events)| (revision, on_wire(events)))
        .collect()
}

fn on_wire(events: &[Event]) -> Vec<v1::Event> {
    events.iter().map(|it| v1::Event::from(&it.kind)).collect()
}

struct Replay<Sights: Iterator<Item = Observation>> {
    truth: ReplayedLog,
    sights: std::iter::Peekable<Sights>,
    /// States of replicas at entries not yet replayed.
    pictures: Vec<StateSnapshot>,
}

impl<Sights: Iterator<Item = Observation>> Replay<Sights> {
    fn violation(&mut self, invariant: Invariant, text: String) {
        self.truth.violations.push(Violation { invariant, text });
    }

    /// I11: replicas have the same committed entries.
    fn compare(
        &mut self,
        remains: &[OfflineLog<State>],
        chosen: &OfflineLog<State>,
        committed: u64,
    ) {
        let known: BTreeMap<u64, u64> = chosen
            .entries
            .iter()
            .map(|entry| (entry.index, entry.digest))
            .collect();
        for (replica, one) in (1..).zip(remains) {
            let last = one.range().map_or(0, |range| *range.end());
            if last + LAG_ENTRIES_MAX < committed {
                let text = format!("replica {replica} ends at log entry {last} of {committed}");
                self.violation(Invariant::Agreement, text);
            }
            for entry in one.entries.iter().filter(|entry| entry.index <= committed) {
                let Some(expected) = known.get(&entry.index) else {
                    continue;
                };
                self.truth.compared += 1;
                if entry.digest != *expected {
                    let index = entry.index;
                    let text = format!("replica {replica} has a different log entry {index}");
                    self.violation(Invariant::Agreement, text);
                    break;
                }
            }
        }
    }

    /// Skips answers about entries purged behind a snapshot: they cannot be checked.
    fn skip_unknown(&mut self) {
        let base = self.truth.base;
        while self.sights.next_if(|sight| sight.revision < base).is_some() {}
        self.look();
    }

    fn apply(&mut self, entry: &StoredEntry<State>) {
        for command in &entry.commands {
            let before = self.truth.state.revision;
            let current = self.truth.state.leadership.epoch;
            let applied = apply(&mut self.truth.state, TimeMs(entry.time_ms), command);
            self.truth.commands += 1;
            if let Some(leader) = command.leader().filter(|leader| *leader < current) {
                let refused = matches!(applied.result, Err(Rejection::StaleLeader { .. }));
                self.judge_stale(leader, refused, applied.revision);
            }
            self.take_events(before);
            self.look();
        }
        self.compare_states(entry.index);
    }

    /// I11: replicas that applied the same entries have the same state.
    fn compare_states(&mut self, index: u64) {
        let pictures = std::mem::take(&mut self.pictures);
        let (now, later) = pictures.into_iter().partition(|it| it.index == index);
        self.pictures = later;
        for picture in now {
            self.truth.states += 1;
            let replica = &picture.replica;
            if picture.hash != self.truth.state.state_hash() {
                let text = format!("{replica} had a different state after log entry {index}");
                self.violation(Invariant::Agreement, text);
            }
            if !picture.is_as_kept {
                let text =
                    format!("{replica} sent a different state than it had after log entry {index}");
                self.violation(Invariant::Agreement, text);
            }
        }
    }

    /// Reports states at entries that were never committed.
    fn report_unmade(&mut self, committed: u64) {
        for picture in std::mem::take(&mut self.pictures) {
            if picture.index > committed {
                let StateSnapshot { replica, index, .. } = picture;
                let text =
                    format!("{replica} had applied log entry {index}, of {committed} committed");
                self.violation(Invariant::Agreement, text);
            }
        }
    }

    /// I3: proposals of a deposed leader take no effect.
    fn judge_stale(&mut self, leader: LeadershipEpoch, refused: bool, revision: Revision) {
        self.truth.stale += 1;
        if !refused {
            let text =
                format!("revision {revision} comes from leadership {leader}, which had ended");
            self.violation(Invariant::Fencing, text);
        }
    }

    fn take_events(&mut self, before: Revision) {
        let state = &self.truth.state;
        // They were pushed a moment ago: none of them can have been dropped.
        let newest = state.events.after(before).into_iter().flatten();
        let mut grants = Vec::new();
        for (revision, events) in newest {
            self.truth.events.insert(revision, on_wire(events));
            let placed = events
                .iter()
                .filter_map(|event| grant_of(state, &event.kind));
            grants.extend(placed);
        }
        for (epoch, grant) in grants {
            self.truth.grants.insert(epoch, grant);
        }
    }

    /// I9: answers at this revision match the state.
    fn look(&mut self) {
        let revision = self.truth.state.revision;
        while let Some(sight) = self.sights.next_if(|sight| sight.revision <= revision) {
            if sight.is_read() {
                self.truth.reads += 1;
            } else {
                self.truth.writes += 1;
            }
            if let Some(text) = sight.contradiction(&self.truth.state) {
                self.violation(Invariant::Linearizability, text);
            }
        }
    }

    fn audit(&mut self) {
        self.truth.audits += 1;
        let revision = self.truth.state.revision;
        for finding in audit(&self.truth.state) {
            let text = format!("revision {revision}: {finding}");
            self.violation(Invariant::Audit, text);
        }
    }

    /// Reports answers with revisions that never existed.
    fn report_unseen(&mut self) {
        while let Some(sight) = self.sights.next() {
            let text = format!(
                "an answer about job {} names revision {}, which no committed entry created",
                sight.job, sight.revision
            );
            self.violation(Invariant::Linearizability, text);
        }
    }
}

/// The grant of a placement event, with details from its state.
fn grant_of(state: &State, kind: &EventKind) -> Option<(AttemptEpoch, Grant)> {
    let EventKind::AttemptPlaced {
        job,
        unit,
        epoch,
        number,
        ..
    } = kind
    else {
        return None;
    };
    let attempt = state.job(*job)?.unit(*unit)?.attempt.as_ref()?;
    let gpus = attempt
        .tasks
        .iter()
        .flat_map(|task| task.gpus.iter().copied());
    let grant = Grant {
        job: *job,
        unit: *unit,
        number: *number,
        gpus: gpus.collect(),
    };
    Some((*epoch, grant))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_model::command::Command;
    use muster_model::ids::ReplicaId;
    use muster_model::lifecycle::JobPhase;

    use super::observed_read::ObservedFact;
    use super::*;

    fn entry(index: u64, commands: Vec<Command>) -> StoredEntry<State> {
        StoredEntry {
            index,
            term: 1,
            time_ms: index,
            commands,
            digest: index,
        }
    }

    fn began(replica: u64) -> Command {
        Command::LeadershipStarted {
            replica: ReplicaId(replica),
        }
    }

    fn remains(entries: Vec<StoredEntry<State>>, committed: u64) -> OfflineLog<State> {
        OfflineLog {
            base: State::default(),
            entries,
            committed: Some(committed),
        }
    }

    fn replay_of(sights: Vec<Observation>) -> Replay<std::vec::IntoIter<Observation>> {
        Replay {
            truth: ReplayedLog::default(),
            sights: sights.into_iter().peekable(),
            pictures: Vec::new(),
        }
    }

    fn sight(revision: u64, phase: Option<JobPhase>) -> Observation {
        Observation {
            revision: Revision(revision),
            job: JobId(9),
            seen: ObservedFact::Phase(phase),
        }
    }

    fn invariants(truth: &ReplayedLog) -> Vec<Invariant> {
        truth.violations.iter().map(|it| it.invariant).collect()
    }

    #[test]
    fn proposals_of_an_old_leader_must_be_refused() {
        let mut replay = replay_of(Vec::new());
        let old = Command::Prune {
            leader: LeadershipEpoch(1),
        };
        replay.apply(&entry(1, vec![began(1), began(2), old]));
        assert_eq!((replay.truth.stale, invariants(&replay.truth)), (1, vec![]));
        replay.judge_stale(LeadershipEpoch(1), false, Revision(4));
        assert_eq!(invariants(&replay.truth), [Invariant::Fencing]);
    }

    #[test]
    fn a_read_must_have_seen_what_was_there_at_its_revision() {
        // Job and revision never existed: any answer about them is wrong.
        let sights = vec![
            sight(1, None),
            sight(2, Some(JobPhase::Queued)),
            sight(7, None),
        ];
        let mut replay = replay_of(sights);
        replay.apply(&entry(1, vec![began(1), began(2)]));
        assert_eq!(invariants(&replay.truth), [Invariant::Linearizability]);
        replay.report_unseen();
        assert_eq!((replay.truth.violations.len(), replay.truth.reads), (2, 2));
    }

    #[test]
    fn a_replica_must_have_the_state_that_the_log_leads_to() {
        let mut replay = replay_of(Vec::new());
        let first = entry(1, vec![began(1)]);
        let mut same = State::default();
        apply(&mut same, TimeMs(1), &began(1));
        let picture = |index, hash, is_as_kept| StateSnapshot {
            replica: "replica-1".to_owned(),
            index,
            hash,
            is_as_kept,
        };
        let hash = same.state_hash();
        replay.pictures = vec![picture(1, hash, true), picture(2, hash, true)];
        replay.apply(&first);
        assert_eq!(
            (replay.truth.states, invariants(&replay.truth)),
            (1, vec![])
        );
        // Time has advanced, and a leader was elected.
        replay.apply(&entry(2, vec![began(2)]));
        assert_eq!(invariants(&replay.truth), [Invariant::Agreement]);
        replay.pictures = vec![picture(3, replay.truth.state.state_hash(), false)];
        replay.apply(&entry(3, Vec::new()));
        assert_eq!(invariants(&replay.truth).len(), 2);
        replay.pictures = vec![picture(9, hash, true)];
        replay.report_unmade(3);
        assert_eq!(invariants(&replay.truth).len(), 3);
    }

    #[test]
    fn replicas_that_differ_and_one_that_lacks_much_are_noticed() {
        let whole: Vec<_> = (0..=LAG_ENTRIES_MAX + 5)
            .map(|at| entry(at, Vec::new()))
            .collect();
        let last = LAG_ENTRIES_MAX + 5;
        let mut other = whole.clone();
        other[3].digest = 77;
        let all = [
            remains(whole.clone(), last),
            remains(other, last),
            remains(whole[..3].to_vec(), 2),
        ];
        let mut replay = replay_of(Vec::new());
        replay.compare(&all, &all[0], last);
        let kinds = [Invariant::Agreement, Invariant::Agreement];
        assert_eq!(invariants(&replay.truth), kinds);
    }

    #[test]
    fn a_committed_entry_that_no_replica_has_is_lost() {
        let some = |count: u64| (0..count).map(|at| entry(at, Vec::new())).collect();
        let mut all = [remains(some(4), 3), remains(some(6), 5)];
        let (chosen, lost) = account(&all, 5).unwrap();
        assert_eq!((chosen.entries.len(), lost), (6, None));
        let (chosen, lost) = account(&all, 7).unwrap();
        let invariant = lost.map(|it| it.invariant);
        assert_eq!(
            (chosen.entries.len(), invariant),
            (6, Some(Invariant::Durability))
        );
        // It may be covered by the snapshot.
        all[0].base.revision = Revision(9);
        assert!(account(&all, 7).is_err());
    }

    #[test]
    fn entries_of_a_majority_are_committed_whatever_was_recorded() {
        let some = |count: u64| {
            (0..count)
                .map(|at| entry(at, Vec::new()))
                .collect::<Vec<_>>()
        };
        let all = [
            remains(some(9), 3),
            remains(some(7), 2),
            remains(some(5), 2),
        ];
        assert_eq!(committed(&all), 6);
        let alone = [
            remains(some(9), 3),
            remains(some(4), 2),
            remains(some(4), 2),
        ];
        assert_eq!(committed(&alone), 3);
    }
}
