//! Observers of a world: the checkers, the audits, and the violations they found.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use muster_engine::audit::audit;
use muster_engine::state::State;
use muster_model::ids::Revision;
use muster_raft_store::sim::{AppliedEntry, Observer};
use tokio::time::Instant;

use crate::checkers::{
    AcknowledgedWrites, Agreement, Assembly, Entry, Fencing, GpuLedger, OrderFencing, Owner,
    PlacementBlocks, RaftRules, WatchDeliveries, false_attribution, phantom_successes,
    sampling_interval,
};
use crate::sim::faults::coverage::{Coverage, Preemptions, Situation};
use crate::sim::record::{Record, Scene, SceneKind};
use crate::sim::results::digest::Digest;
use crate::sim::results::report::Violation;
use crate::sim::runtime::NodeId;

/// Number of sources of violations: the checkers, and directly reported ones.
const SOURCES: usize = 10;

/// The checkers of one world; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Checkers {
    seen: Arc<Mutex<CheckerState>>,
    reached_ms: Arc<AtomicU64>,
}

/// Sampling interval of audits for states whose hash another replica already had: a hash does not cover
/// what a replica derives from its state.
const AUDITED_ONE_IN: u64 = 16;
/// All checkers and their observations.
#[derive(Debug, Default)]
pub struct CheckerState {
    /// GPU ledger of the processes.
    pub gpu_ledger: GpuLedger,
    /// Gang start barrier.
    pub assembly: Assembly,
    /// Orders acted on by agents.
    pub obedience: OrderFencing,
    /// Effects of commands by leadership.
    pub fencing: Fencing,
    /// Components out of placement, and placements.
    pub closed: PlacementBlocks,
    /// Answers to users.
    pub acknowledged: AcknowledgedWrites,
    /// State hashes of replicas.
    pub agreement: Agreement,
    /// Logs of replicas.
    pub raft: RaftRules,
    /// Deliveries to watchers.
    pub watching: WatchDeliveries,
    /// Situations reached by the world.
    pub coverage: Coverage,
    /// Directly reported violations.
    pub violations: Vec<Violation>,
    /// Whether a new group continued from an earlier state of a lost one.
    pub was_restored: bool,
    /// Number of audited states.
    pub audits: u64,
    preemptions: Preemptions,
    /// Digest cache for the newest state of each replica.
    digests: BTreeMap<u32, Digest>,
    /// Newest revision whose events were processed.
    read: Revision,
    began: Option<Instant>,
    record: Option<Record>,
    /// Number of known violations per source.
    known: [usize; SOURCES],
    first_ms: Option<u64>,
}

impl Checkers {
    /// Checkers with a full record.
    #[must_use]
    pub fn with_record() -> Self {
        let checkers = Self::default();
        checkers.with(|seen| seen.record = Some(Record::default()));
        checkers
    }

    /// Starts the world's time.
    pub fn begin(&self) {
        self.with(|seen| seen.began = Some(Instant::now()));
    }

    /// Current simulated time in milliseconds, readable while the world runs.
    #[must_use]
    pub fn reached_ms(&self) -> u64 {
        self.reached_ms.load(Ordering::Relaxed)
    }

    /// Runs a closure on the checkers.
    pub fn with<R>(&self, action: impl FnOnce(&mut CheckerState) -> R) -> R {
        // A panic while the lock is held ends the world anyway, and the data has no invariants.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let result = action(&mut seen);
        seen.notice();
        result
    }

    /// Records a scene, if there is a record.
    pub fn scene(&self, scene: impl FnOnce() -> Scene) {
        self.with(|seen| seen.scene(scene));
    }

    /// Takes the record; `None` if there is none.
    #[must_use]
    pub fn take_record(&self) -> Option<Record> {
        self.with(|seen| seen.record.take())
    }

    /// Records a violation.
    pub fn violate(&self, violation: Violation) {
        self.with(|seen| seen.violations.push(violation));
    }

    /// Whether no violation was found yet.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.with(|seen| seen.counts() == [0; SOURCES])
    }

    /// Audits a replica's state and compares it with those of other replicas.
    pub fn audit(&self, replica: u32, state: &State) {
        self.compare(replica, state);
        let findings = audit(state);
        self.with(|seen| {
            seen.audits += 1;
            let findings = findings
                .iter()
                .map(|finding| Violation::Audit(finding.to_string()));
            seen.violations.extend(findings);
        });
    }

    /// Compares a replica's state with those of others.
    fn compare(&self, replica: u32, state: &State) {
        self.with(|seen| {
            let digest = seen.digests.entry(replica).or_default().of(state);
            seen.agreement.record_hash(replica, state.revision, digest);
        });
    }

    /// All replicas are lost, and a new group will continue from this state of theirs: later events did not
    /// happen, but their tasks still run.
    pub fn goes_back(&self, state: &State) {
        self.with(|seen| {
            seen.was_restored = true;
            seen.acknowledged.goes_back(state);
            seen.closed.goes_back(state);
            seen.preemptions = Preemptions::default();
            let unknown = seen
                .gpu_ledger
                .attempts()
                .filter(|owner| !knows(state, *owner));
            let unknown = unknown.count() as u64;
            let ran = Situation::RanUnknownToBackup;
            seen.coverage.reached_times(ran, unknown);
        });
    }

    /// A new group continues from this state: its revisions and events come after those of any previous
    /// group.
    pub fn restored_from(&self, state: &State) {
        self.with(|seen| {
            if state.revision <= seen.read {
                let text = format!(
                    "(a new group) begins at revision {}, but another group reached {}",
                    state.revision, seen.read
                );
                seen.violations.push(Violation::Replica(text));
            }
            seen.read = state.revision;
            seen.fencing.restored_from(state);
        });
    }

    /// Checks a replica's final state.
    pub fn judge_final(&self, replica: u32, state: &State) {
        self.audit(replica, state);
        self.with(|seen| {
            let lost = seen.acknowledged.judge(state);
            seen.violations
                .extend(lost.into_iter().map(Violation::Lost));
            let phantoms = phantom_successes(state, &seen.gpu_ledger);
            let phantoms = phantoms.into_iter().map(Violation::Phantom);
            seen.violations.extend(phantoms);
        });
    }

    /// Observer of a replica: checks every applied entry with the resulting state.
    #[must_use]
    pub fn onlooker(&self, replica: u32) -> Arc<dyn Observer<State>> {
        self.with(|seen| seen.raft.started(replica));
        Arc::new(ReplicaObserver {
            replica,
            checkers: self.clone(),
            has_begun: AtomicBool::new(false),
        })
    }
}

/// Whether a state has an attempt of a task.
fn knows(state: &State, owner: Owner) -> bool {
    let job = state.job(owner.key.job);
    let mut units = job.iter().flat_map(|job| job.units.values());
    units.any(|unit| { unit.attempt.iter() }.any(|attempt| attempt.epoch == owner.epoch))
}

impl CheckerState {
    /// All violations.
    pub fn found(&self) -> impl Iterator<Item = Violation> + '_ {
        (0..SOURCES).flat_map(|source| self.found_by(source, 0))
    }

    /// Milliseconds from the start of the world to the first violation.
    #[must_use]
    pub const fn first_ms(&self) -> Option<u64> {
        self.first_ms
    }

    /// Milliseconds since the start of the world.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        let elapsed = self.began.map(|began| began.elapsed().as_millis());
        elapsed.map_or(0, |elapsed| u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    /// Records a scene, if there is a record.
    pub fn scene(&mut self, scene: impl FnOnce() -> Scene) {
        let at_ms = self.now_ms();
        if let Some(record) = &mut self.record {
            record.push(at_ms, scene());
        }
    }

    fn counts(&self) -> [usize; SOURCES] {
        [
            self.gpu_ledger.overlaps().len(),
            self.assembly.violations().len(),
            self.obedience.found().len(),
            self.acknowledged.contradictions().len(),
            self.agreement.violations().len(),
            self.raft.violations().len(),
            self.watching.found().len(),
            self.closed.found().len(),
            self.fencing.violations().len(),
            self.violations.len(),
        ]
    }

    /// Violations of a source, without the first `known` ones.
    fn found_by(&self, source: usize, known: usize) -> Vec<Violation> {
        fn all<T: Clone>(found: &[T], of: fn(T) -> Violation) -> Vec<Violation> {
            found.iter().cloned().map(of).collect()
        }
        match source {
            0 => all(&self.gpu_ledger.overlaps()[known..], Violation::Overlap),
            1 => all(&self.assembly.violations()[known..], Violation::EarlyStart),
            2 => all(&self.obedience.found()[known..], Violation::Disobedience),
            3 => all(
                &self.acknowledged.contradictions()[known..],
                Violation::Lost,
            ),
            4 => all(&self.agreement.violations()[known..], Violation::Divergence),
            5 => all(&self.raft.violations()[known..], Violation::Raft),
            6 => all(&self.watching.found()[known..], Violation::Watch),
            7 => all(&self.closed.found()[known..], Violation::Misplaced),
            8 => all(&self.fencing.violations()[known..], Violation::Stale),
            _ => self.violations[known..].to_vec(),
        }
    }

    /// Collects new violations.
    fn notice(&mut self) {
        let counts = self.counts();
        if counts == self.known {
            return;
        }
        self.first_ms = self.first_ms.or(Some(self.now_ms()));
        let known = std::mem::replace(&mut self.known, counts);
        if self.record.is_none() {
            return;
        }
        for (source, known) in known.into_iter().enumerate() {
            for violation in self.found_by(source, known) {
                self.scene(|| Scene::new(SceneKind::Violation, violation));
            }
        }
    }

    /// Processes an entry applied by the first replica.
    fn read_entry(&mut self, node: NodeId, entry: &AppliedEntry<'_, State>) {
        for (command, outcome) in entry.commands.iter().zip(entry.outcomes) {
            if self.fencing.applied(command, outcome) {
                self.coverage.reached(Situation::StaleCommandRefused);
            }
            self.scene(|| {
                let (index, term) = (entry.index, entry.term);
                let result = &outcome.result;
                let what = format!("entry {index} of term {term}: {result:?} for {command:?}");
                Scene::new(SceneKind::Command, what)
                    .on(node)
                    .at(outcome.revision)
            });
        }
        if entry.commands.is_empty() {
            self.scene(|| {
                let what = format!("entry {} of Raft itself, term {}", entry.index, entry.term);
                Scene::new(SceneKind::Leader, what).on(node)
            });
        }
        self.read_events(entry.state);
        self.closed.read(entry.state);
        if let Some(record) = &mut self.record {
            record.keep(entry.state);
        }
    }

    /// Processes the new events of a state.
    fn read_events(&mut self, state: &State) {
        let after = self.read;
        self.read = after.max(state.revision);
        for (revision, events) in state.events.after(after).into_iter().flatten() {
            self.watching.happened(revision, events);
            for event in events.iter() {
                self.preemptions.read(&event.kind, &mut self.coverage);
                self.closed.happened(&event.kind, state);
                self.violations
                    .extend(false_attribution(&event.kind).map(Violation::Blamed));
                self.scene(|| {
                    Scene::new(SceneKind::Event, format!("{:?}", event.kind))
                        .about(event.kind.job())
                        .at(revision)
                });
            }
        }
    }
}

/// Observer of one replica.
#[derive(Debug)]
struct ReplicaObserver {
    replica: u32,
    checkers: Checkers,
    /// Whether it has seen a state since the replica started.
    has_begun: AtomicBool,
}

impl Observer<State> for ReplicaObserver {
    fn applied(&self, entry: &AppliedEntry<'_, State>) {
        let is_first = self.checkers.with(|seen| {
            let reached_ms = &self.checkers.reached_ms;
            reached_ms.store(seen.now_ms(), Ordering::Relaxed);
            let shown = Entry {
                index: entry.index,
                term: entry.term,
                leader: entry.leader,
                digest: entry.digest,
            };
            let is_first = seen.raft.applied(self.replica, shown);
            if is_first {
                seen.read_entry(NodeId(self.replica), entry);
            }
            is_first
        });
        let has_begun = self.has_begun.swap(true, Ordering::Relaxed);
        let one_in = sampling_interval(entry.state);
        let is_due = |every: u64| entry.index.is_multiple_of(every * one_in);
        if !has_begun || is_due(if is_first { 1 } else { AUDITED_ONE_IN }) {
            self.checkers.audit(self.replica, entry.state);
        } else if is_due(1) {
            self.checkers.compare(self.replica, entry.state);
        }
    }

    fn installed(&self, index: u64, state: &State) {
        self.checkers.with(|seen| {
            seen.raft.installed(self.replica, index);
            seen.coverage.reached(Situation::SnapshotInstalled);
            seen.scene(|| {
                let what = format!("a snapshot up to entry {index} is installed");
                Scene::new(SceneKind::Leader, what)
                    .on(NodeId(self.replica))
                    .at(state.revision)
            });
        });
        self.checkers.audit(self.replica, state);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_harness::{Cluster, single};
    use muster_model::ids::HostId;

    use super::*;
    use crate::checkers::LOOKED_AT_MAX;

    fn applied(state: &State, index: u64) -> AppliedEntry<'_, State> {
        AppliedEntry {
            index,
            term: 1,
            leader: 1,
            digest: index,
            commands: &[],
            outcomes: &[],
            state,
        }
    }

    /// The states in between are broken for one entry each: polling the newest state never reveals them.
    #[test]
    fn every_entry_is_audited() {
        let checkers = Checkers::with_record();
        let mut cluster = Cluster::with_hosts(1, 2);
        let onlooker = checkers.onlooker(1);
        onlooker.applied(&applied(&cluster.state, 1));
        assert!(checkers.is_clean());
        let job = cluster.submit(single("kept", 1, 1));
        let mut broken = cluster.state.clone();
        broken.jobs.remove(&job);
        onlooker.applied(&applied(&broken, 2));
        onlooker.applied(&applied(&cluster.state, 3));
        assert!(!checkers.is_clean());
        checkers.with(|seen| {
            assert_eq!(seen.audits, 3);
            assert!(seen.found().any(|it| matches!(it, Violation::Audit(_))));
        });
        let record = checkers.take_record().unwrap();
        assert!(record.first_violation().is_some());
    }

    #[test]
    fn of_large_states_one_in_some_is_looked_at() {
        let checkers = Checkers::default();
        let cluster = Cluster::with_hosts(1, 2);
        let mut large = cluster.state;
        let host = Arc::clone(large.hosts.values().next().unwrap());
        for number in 0..2 * LOOKED_AT_MAX as u32 {
            large.hosts.insert(HostId(number), host.clone());
        }
        assert_eq!(sampling_interval(&large), 3);
        let onlooker = checkers.onlooker(1);
        // Its first one, and the third and the sixth, of which violations are reported.
        for (index, audits) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 3)] {
            onlooker.applied(&applied(&large, index));
            assert_eq!(
                checkers.with(|seen| seen.audits),
                audits,
                "after entry {index}"
            );
        }
        assert!(!checkers.is_clean(), "two hosts share a name");
    }

    #[test]
    fn who_applies_it_later_is_compared_and_audited_now_and_then() {
        let checkers = Checkers::default();
        let cluster = Cluster::with_hosts(1, 2);
        let entries = 1..=2 * AUDITED_ONE_IN;
        let (first, later) = (checkers.onlooker(1), checkers.onlooker(2));
        for index in entries.clone() {
            first.applied(&applied(&cluster.state, index));
        }
        let audits = || checkers.with(|seen| seen.audits);
        assert_eq!(audits(), 2 * AUDITED_ONE_IN);
        for index in entries {
            later.applied(&applied(&cluster.state, index));
        }
        // Its first one, and the 16th and the 32nd.
        assert_eq!(audits(), 2 * AUDITED_ONE_IN + 3);
        later.installed(2 * AUDITED_ONE_IN, &cluster.state);
        assert_eq!(audits(), 2 * AUDITED_ONE_IN + 4);
        let installed = Situation::SnapshotInstalled;
        assert_eq!(checkers.with(|seen| seen.coverage.times(installed)), 1);
        assert!(checkers.is_clean());
        let mut other = cluster.state.clone();
        other.time = other.time.after(1);
        later.applied(&applied(&other, 2 * AUDITED_ONE_IN + 1));
        first.applied(&applied(&cluster.state, 2 * AUDITED_ONE_IN + 1));
        assert!(!checkers.is_clean(), "their states differ");
    }
}
