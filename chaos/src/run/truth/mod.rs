//! What really happened: the replicated log, applied again entry by entry by this program.
//!
//! Whatever users were told and watchers heard is compared with it. What is found here can be no bug of a service, a
//! cache or a stream: only of `apply` itself, which the audit looks after.

mod sight;

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
use muster_raft_store::{Remains, StoredEntry};

use crate::check::looked_at_one_in;
use crate::cluster::CLUSTER_ID;
use crate::run::RunError;
use crate::run::judge::{Invariant, Violation};
use crate::run::options::LAG_ENTRIES_MAX;
use crate::run::pictures::Picture;

pub(super) use sight::Sight;

/// Entries after which the whole state is looked at again, as long as it is not large.
const AUDIT_EVERY_ENTRIES: u64 = 50;

/// An attempt that was placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    /// Whose.
    pub(super) job: JobId,
    /// Which unit.
    pub(super) unit: UnitIndex,
    /// Counts the unit's attempts.
    pub(super) number: u32,
    /// The GPUs that it was given.
    pub(super) gpus: BTreeSet<GpuUuid>,
}

/// The account of a run.
#[derive(Debug, Default)]
pub(super) struct Truth {
    /// Everything up to this revision is not known: the log was removed behind a snapshot.
    pub(super) base: Revision,
    /// The state at its end.
    pub(super) state: State,
    /// Events up to this revision are not known: the state that the log begins with had forgotten them.
    pub(super) forgotten: Revision,
    /// The events of each revision after `forgotten` that has any.
    pub(super) events: BTreeMap<Revision, Vec<v1::Event>>,
    /// Every attempt that was placed after `base`.
    pub(super) grants: BTreeMap<AttemptEpoch, Grant>,
    /// Commands that were applied.
    pub(super) commands: u64,
    /// Commands of leaders that led no more, which were refused.
    pub(super) stale: u64,
    /// Entries of which several replicas had the same.
    pub(super) compared: u64,
    /// Reads that were compared.
    pub(super) reads: u64,
    /// Submissions and cancels that were compared.
    pub(super) writes: u64,
    /// States of replicas that were compared.
    pub(super) states: u64,
    /// How often the whole state was looked at.
    pub(super) audits: u64,
    /// What must not have been.
    pub(super) violations: Vec<Violation>,
}

/// Reads what the replicas left and applies the log of the one that has most of it. `pictures`: the states that they came to.
///
/// # Errors
/// If a replica's data cannot be read.
pub(super) fn replay(
    folders: &[PathBuf],
    mut sights: Vec<Sight>,
    pictures: Vec<Picture>,
) -> Result<Truth, RunError> {
    let mut remains = Vec::new();
    for folder in folders {
        remains.push(Remains::<State>::read(folder, CLUSTER_ID)?);
    }
    let committed = committed(&remains);
    let (chosen, lost) = account(&remains, committed)?;
    sights.sort_by_key(|sight| sight.revision);
    let mut replay = Replay {
        truth: Truth {
            base: chosen.base.revision,
            forgotten: chosen.base.events.compacted(),
            events: kept_events(&chosen.base),
            state: chosen.base.clone(),
            violations: lost.into_iter().collect(),
            ..Truth::default()
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
        let pause = AUDIT_EVERY_ENTRIES * looked_at_one_in(&replay.truth.state);
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

/// The longest account: of those that reach the newest committed entry the one that begins first. If all are whole from the first
/// entry on and none reaches it, something committed is lost, and what is left of it is judged.
fn account(
    remains: &[Remains<State>],
    committed: u64,
) -> Result<(&Remains<State>, Option<Violation>), RunError> {
    let whole = remains
        .iter()
        .filter(|it| it.range().is_some_and(|range| *range.end() >= committed))
        .min_by_key(|it| it.range().map_or(u64::MAX, |range| *range.start()));
    if let Some(whole) = whole {
        return Ok((whole, None));
    }
    let text = format!("no replica has log entry {committed}, which was committed");
    // A log that was cut may as well end with its snapshot.
    let is_cut = |it: &Remains<State>| it.base.revision > Revision(0);
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

/// The newest committed position: the newest that any replica noted, and what a majority has beyond it. The notes may be
/// behind.
fn committed(remains: &[Remains<State>]) -> u64 {
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

/// The events that a state remembers of revisions of which it has all.
fn kept_events(state: &State) -> BTreeMap<Revision, Vec<v1::Event>> {
    let kept = state.events.kept_after(state.events.compacted());
    kept.map(|(revision, events)| (revision, on_wire(events)))
        .collect()
}

fn on_wire(events: &[Event]) -> Vec<v1::Event> {
    events.iter().map(|it| v1::Event::from(&it.kind)).collect()
}

struct Replay<Sights: Iterator<Item = Sight>> {
    truth: Truth,
    sights: std::iter::Peekable<Sights>,
    /// States of replicas that the replay has not come to yet.
    pictures: Vec<Picture>,
}

impl<Sights: Iterator<Item = Sight>> Replay<Sights> {
    fn violation(&mut self, invariant: Invariant, text: String) {
        self.truth.violations.push(Violation { invariant, text });
    }

    /// I11: replicas have the same committed entries.
    fn compare(&mut self, remains: &[Remains<State>], chosen: &Remains<State>, committed: u64) {
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
                    let text = format!("replica {replica} has another log entry {index}");
                    self.violation(Invariant::Agreement, text);
                    break;
                }
            }
        }
    }

    /// Answers of what was removed behind a snapshot cannot be judged.
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

    /// I11: whoever applied as much has the same state.
    fn compare_states(&mut self, index: u64) {
        let pictures = std::mem::take(&mut self.pictures);
        let (now, later) = pictures.into_iter().partition(|it| it.index == index);
        self.pictures = later;
        for picture in now {
            self.truth.states += 1;
            let replica = &picture.replica;
            if picture.hash != self.truth.state.state_hash() {
                let text = format!("{replica} had another state after log entry {index}");
                self.violation(Invariant::Agreement, text);
            }
            if !picture.is_as_kept {
                let text =
                    format!("{replica} gave another state than it had after log entry {index}");
                self.violation(Invariant::Agreement, text);
            }
        }
    }

    /// States of entries that were never committed.
    fn report_unmade(&mut self, committed: u64) {
        for picture in std::mem::take(&mut self.pictures) {
            if picture.index > committed {
                let Picture { replica, index, .. } = picture;
                let text =
                    format!("{replica} had applied log entry {index}, of {committed} committed");
                self.violation(Invariant::Agreement, text);
            }
        }
    }

    /// I3: nothing that a leader proposes takes effect once another leads.
    fn judge_stale(&mut self, leader: LeadershipEpoch, refused: bool, revision: Revision) {
        self.truth.stale += 1;
        if !refused {
            let text = format!("revision {revision} is of leadership {leader}, which was over");
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

    /// I9: what was answered with this revision was so.
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

    /// Answers with revisions that never were.
    fn report_unseen(&mut self) {
        while let Some(sight) = self.sights.next() {
            let text = format!(
                "an answer about job {} names revision {}, which no committed entry made",
                sight.job, sight.revision
            );
            self.violation(Invariant::Linearizability, text);
        }
    }
}

/// What an event says to have been given to an attempt, by the state that it is about.
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

    use super::sight::Seen;
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
        Command::LeaderBegan {
            replica: ReplicaId(replica),
        }
    }

    fn remains(entries: Vec<StoredEntry<State>>, committed: u64) -> Remains<State> {
        Remains {
            base: State::default(),
            entries,
            committed: Some(committed),
        }
    }

    fn replay_of(sights: Vec<Sight>) -> Replay<std::vec::IntoIter<Sight>> {
        Replay {
            truth: Truth::default(),
            sights: sights.into_iter().peekable(),
            pictures: Vec::new(),
        }
    }

    fn sight(revision: u64, phase: Option<JobPhase>) -> Sight {
        Sight {
            revision: Revision(revision),
            job: JobId(9),
            seen: Seen::Phase(phase),
        }
    }

    fn invariants(truth: &Truth) -> Vec<Invariant> {
        truth.violations.iter().map(|it| it.invariant).collect()
    }

    #[test]
    fn what_an_old_leader_proposes_must_be_refused() {
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
        // Nobody ever submitted a job: whoever saw one is wrong, and so is a read of what never was.
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
        let picture = |index, hash, is_as_kept| Picture {
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
        // Time has gone on, and a leader began.
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
        // It may be in the snapshot.
        all[0].base.revision = Revision(9);
        assert!(account(&all, 7).is_err());
    }

    #[test]
    fn what_a_majority_has_is_committed_whatever_was_noted() {
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
