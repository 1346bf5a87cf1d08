//! Checkers without access to the log: compare the users' history with the watchers' events and the final
//! state.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::event::EventKind;
use muster_model::ids::{
    AttemptEpoch, HostId, JobId, LeadershipEpoch, RequestId, Revision, UnitIndex,
};
use muster_model::lifecycle::JobPhase;
use muster_proto::v1;

use crate::checkers::AcknowledgedWrites;
use crate::cluster::Fault;
use crate::run::checkers::checks::EventCounts;
use crate::run::checkers::{
    Check, Evidence, Invariant, Violation, checks, durability, linearizability, watch,
};
use crate::run::external::Tag;
use crate::run::external::blocked::BlockChecker;
use crate::run::external::cleanup::has_ended;
use crate::run::external::ledger::{self, LedgerFolder};
use crate::run::history::{Call, Outcome};
use crate::run::load::WatchedEvents;
use crate::run::replay::ReplayedLog;
use crate::run::report::{CheckResults, Coverage, coverage};

/// Invariants that cannot be checked from outside.
pub(super) fn not_judged(has_ledger: bool) -> Vec<&'static str> {
    let by_tasks = if has_ledger {
        "which GPUs an attempt was given, and whether a counted success has run to its end: events do not show it"
    } else {
        "I1, I2 and I6 by the tasks' GPU ledger (--gpu-ledger)"
    };
    vec![
        "I3 (commands of old leaders), I8, I11 and the audit: the log and the states are internal to the replicas",
        "L1 to L3, L6, P1 and P4: timings and other faults depend on the cluster's owner",
        by_tasks,
    ]
}

/// Union of the events of all watchers: all must have received the same, except those reported as
/// forgotten.
pub(super) fn union_of_events(watched: &[WatchedEvents]) -> ReplayedLog {
    let mut events = BTreeMap::new();
    for delivery in watched.iter().flat_map(|it| &it.deliveries) {
        events
            .entry(delivery.revision)
            .or_insert_with(|| delivery.events.clone());
    }
    let gaps = watched.iter().flat_map(|it| &it.gaps);
    ReplayedLog {
        events,
        forgotten: gaps.map(|gap| gap.until).max().unwrap_or_default(),
        ..ReplayedLog::default()
    }
}

/// Parameters of the run, and its effects on the cluster.
pub(super) struct RunContext<'a> {
    /// Tag of the run.
    pub(super) tag: &'a Tag,
    /// Allowed faults.
    pub(super) allowed: &'a BTreeSet<Fault>,
    /// Jobs of the run after clean-up.
    pub(super) own: &'a [v1::Job],
    /// Ids and names of the hosts that it may have blocked.
    pub(super) taken: &'a BTreeMap<HostId, String>,
    /// GPU ledger of its tasks, if they keep one.
    pub(super) kept: Option<&'a LedgerFolder>,
}

/// Returns all violations with the evidence.
pub(super) fn judge(evidence: &Evidence, played: &RunContext<'_>) -> CheckResults {
    let own = played.own;
    let story = EventHistory::of(&evidence.log);
    let mut violations = of_answers(evidence, own, &story);
    violations.extend(linearizability::judge(&evidence.operations));
    violations.extend(watch::judge(
        &evidence.watched,
        &evidence.log,
        evidence.last,
    ));
    violations.extend(of_progress(evidence, own));
    let missed = missed_by_all(&evidence.watched);
    let (mut counts, mut blocks) = (EventCounts::default(), 0);
    if missed.is_none() {
        let (reads, of_reads) = of_reads(evidence, &story);
        violations.extend(of_reads);
        violations.extend(story.violations.iter().cloned());
        let known = known(&evidence.watched);
        violations.extend(ledger::judge(&evidence.ledger, &evidence.log, known));
        let blocked = BlockChecker::of(&evidence.log, played.taken, played.tag);
        violations.extend(blocked.violations.iter().cloned());
        counts = EventCounts {
            attempts: story.attempts_seen,
            leaders: story.leaders_seen,
            reads,
        };
        blocks = blocked.blocks;
    }
    violations.sort_by_key(|violation| violation.invariant);
    let judged = checks::judged_outside(evidence, counts, own.len());
    CheckResults {
        checks: Check::all(judged, &violations),
        violations,
        coverage: coverage_of(evidence, played, counts.reads, blocks),
        invalid: { played.kept.iter() }
            .filter_map(|kept| kept.missing(&evidence.ledger))
            .chain(missed)
            .collect(),
    }
}

/// Reason why events prove nothing, if there are some that no watcher received.
fn missed_by_all(watched: &[WatchedEvents]) -> Option<String> {
    watch::missed_by_all(watched).map(|revision| {
        format!(
            "no watcher received the events of revision {revision}, as they were forgotten before: the run proves \
             nothing. Repeat it on a cluster that retains more events, or is less busy"
        )
    })
}

/// The revision up to which some watcher received everything.
fn known(watched: &[WatchedEvents]) -> Revision {
    let positions = watched.iter().map(|it| it.position);
    positions.max().unwrap_or_default()
}

/// History of jobs and leaders from the events, in order.
#[derive(Default)]
struct EventHistory {
    finished: BTreeMap<JobId, (Revision, JobPhase)>,
    pruned: BTreeSet<JobId>,
    /// The newest attempt of each unit, and whether it is active.
    attempts: BTreeMap<(JobId, UnitIndex), (AttemptEpoch, bool)>,
    leader: Option<LeadershipEpoch>,
    attempts_seen: usize,
    leaders_seen: usize,
    violations: Vec<Violation>,
}

impl EventHistory {
    fn of(truth: &ReplayedLog) -> Self {
        let mut story = Self::default();
        for (revision, events) in &truth.events {
            // Event kinds unknown to this build are not checked here.
            let kinds = events.iter().cloned().map(EventKind::try_from);
            for kind in kinds.flatten() {
                story.apply(*revision, &kind);
            }
        }
        story
    }

    fn apply(&mut self, revision: Revision, kind: &EventKind) {
        match kind {
            EventKind::JobFinished { job, phase, .. } => {
                if let Some((before, _)) = self.finished.insert(*job, (revision, *phase)) {
                    let text = format!("job {job} ended at {before} and again at {revision}");
                    self.violation(Invariant::OneAttempt, text);
                }
            }
            EventKind::JobPruned { job } => {
                self.pruned.insert(*job);
            }
            EventKind::AttemptPlaced {
                job, unit, epoch, ..
            } => {
                self.attempts_seen += 1;
                let newest = self.attempts.insert((*job, *unit), (*epoch, true));
                if let Some((before, _)) =
                    newest.filter(|(before, lives)| *lives || before >= epoch)
                {
                    let text = format!(
                        "unit {unit} of job {job} was placed in attempt {epoch} while attempt {before} had not ended"
                    );
                    self.violation(Invariant::OneAttempt, text);
                }
            }
            EventKind::AttemptEnded {
                job, unit, epoch, ..
            } => {
                if let Some((newest, lives)) = self.attempts.get_mut(&(*job, *unit))
                    && newest == epoch
                {
                    *lives = false;
                }
            }
            EventKind::LeadershipStarted { epoch, .. } => {
                self.leaders_seen += 1;
                if let Some(before) = self.leader.replace(*epoch).filter(|before| before >= epoch) {
                    let text = format!("leadership {epoch} began after leadership {before}");
                    self.violation(Invariant::Fencing, text);
                }
            }
            _ => {}
        }
    }

    fn violation(&mut self, invariant: Invariant, text: String) {
        self.violations.push(Violation { invariant, text });
    }
}

/// I4 and I5: acknowledged jobs exist, once; refused ones do not.
fn of_answers(evidence: &Evidence, own: &[v1::Job], story: &EventHistory) -> Vec<Violation> {
    let mut acknowledged = AcknowledgedWrites::default();
    let mut asked = BTreeSet::new();
    let there: BTreeMap<JobId, &v1::Job> = own.iter().map(|job| (JobId(job.id), job)).collect();
    let mut found = Vec::new();
    for operation in &evidence.operations {
        match (operation.call, operation.answer()) {
            (Call::Submit(request), answer) => {
                asked.insert(request);
                let Some(answer) = answer else { continue };
                acknowledged.submitted(request, answer.job);
                match there.get(&answer.job) {
                    Some(job) if Tag::request_of(job) != Some(request) => {
                        let job = answer.job;
                        found.push(format!(
                            "request {request} was answered with job {job}, which belongs to others"
                        ));
                    }
                    None if !story.pruned.contains(&answer.job) => {
                        found.push(format!("job {} was acknowledged and is gone", answer.job));
                    }
                    _ => {}
                }
            }
            (Call::Cancel(job), Some(_)) => {
                let is_undone = there.get(&job).is_some_and(|job| job.cancel.is_none());
                if is_undone {
                    found.push(format!("job {job} was cancelled, but no event shows it"));
                }
            }
            _ => {}
        }
    }
    let refused = durability::refused(&evidence.operations);
    found.extend(of_requests(own, &asked, &refused));
    found.extend(
        acknowledged
            .contradictions()
            .iter()
            .map(ToString::to_string),
    );
    found.extend(durability::unseen(&evidence.operations));
    let invariant = Invariant::Durability;
    { found.into_iter() }
        .map(|text| Violation { invariant, text })
        .collect()
}

/// I5: each job is the answer to one request that a user sent and that was not refused.
fn of_requests(
    own: &[v1::Job],
    asked: &BTreeSet<RequestId>,
    refused: &BTreeSet<RequestId>,
) -> Vec<String> {
    let mut seen: BTreeMap<RequestId, u64> = BTreeMap::new();
    let mut found = Vec::new();
    for job in own {
        let id = job.id;
        let Some(request) = Tag::request_of(job) else {
            found.push(format!("job {id} is not the answer to any request"));
            continue;
        };
        if let Some(first) = seen.insert(request, id) {
            found.push(format!(
                "request {request} created job {first} and job {id}"
            ));
        }
        if !asked.contains(&request) {
            found.push(format!(
                "job {id} is the answer to {request}, which no user sent"
            ));
        }
        if refused.contains(&request) {
            found.push(format!(
                "request {request} was refused, but created job {id}"
            ));
        }
    }
    found
}

/// I9: a read returns the end of a job if, and only if, its revision is that of the end or later. Returns
/// the number of comparisons and the violations.
fn of_reads(evidence: &Evidence, story: &EventHistory) -> (usize, Vec<Violation>) {
    let known = known(&evidence.watched);
    let mut compared = 0;
    let mut found = Vec::new();
    for operation in &evidence.operations {
        let Some(answer) = operation.answer().filter(|it| it.revision <= known) else {
            continue;
        };
        let (Call::Read(job), Some(phase)) = (operation.call, answer.phase) else {
            continue;
        };
        compared += 1;
        let revision = answer.revision;
        let end = story.finished.get(&job).filter(|(at, _)| *at <= revision);
        let is_right = match end {
            Some((_, ended)) => phase == *ended,
            None => !phase.is_terminal(),
        };
        if !is_right {
            let end_text = end.map(|(at, ended)| format!("ended as {ended:?} at {at}"));
            let end_text = end_text.unwrap_or_else(|| "not ended".to_owned());
            found.push(Violation {
                invariant: Invariant::Linearizability,
                text: format!(
                    "job {job} was read at revision {revision} as {phase:?}, but had {end_text}"
                ),
            });
        }
    }
    (compared, found)
}

/// L4 and L5: the cluster recovered after each fault, and cancelled jobs ended.
fn of_progress(evidence: &Evidence, own: &[v1::Job]) -> Vec<Violation> {
    let odd = evidence.episodes.iter().flat_map(|episode| {
        let (what, target) = (episode.fault.name(), &episode.target);
        { episode.anomalies.iter() }.map(move |odd| format!("{what} ({target}): {odd}"))
    });
    let live = own.iter().filter(|job| !has_ended(job));
    let live = live.map(|job| format!("job {} was cancelled and has not ended", job.id));
    odd.chain(live)
        .map(|text| Violation {
            invariant: Invariant::Progress,
            text,
        })
        .collect()
}

fn coverage_of(
    evidence: &Evidence,
    played: &RunContext<'_>,
    reads: usize,
    blocks: usize,
) -> Vec<Coverage> {
    let in_phase = |phase| {
        let own = played.own.iter();
        own.filter(|job| job.phase() == phase).count()
    };
    let if_allowed = |fault: Fault| u64::from(played.allowed.contains(&fault));
    let cancels = if_allowed(Fault::JobsCancelled);
    let blocks_min = if_allowed(Fault::HostBlocked);
    // A cluster without GPUs still has a ledger of its tasks.
    let gpus_min = u64::from(played.kept.is_some_and(|kept| kept.has_gpus));
    let delivered: usize = evidence.watched.iter().map(|it| it.deliveries.len()).sum();
    let resumed = evidence.watched.iter().map(|it| it.resumed as usize).sum();
    let gaps: usize = evidence.watched.iter().map(|it| it.gaps.len()).sum();
    let gpus = evidence
        .ledger
        .holdings
        .iter()
        .filter(|it| it.gpu.is_some());
    let cancelled = (evidence.operations.iter())
        .filter(|it| matches!((it.call, &it.outcome), (Call::Cancel(_), Outcome::Done(_))));
    let rows = [
        ("jobs that succeeded", in_phase(v1::JobPhase::Succeeded), 1),
        ("answered cancels", cancelled.count(), cancels),
        ("revisions with events, sent to a watcher", delivered, 1),
        ("streams interrupted and resumed", resumed, 0),
        (coverage::GAPS_REPORTED, gaps, 0),
        ("blocks of hosts, sent to a watcher", blocks, blocks_min),
        ("reads compared with the watchers' events", reads, 1),
        ("GPUs that tasks locked", gpus.count(), gpus_min),
    ];
    let rows = coverage::of_calls(evidence).into_iter().chain(rows);
    rows.map(|(what, count, at_least)| Coverage {
        what,
        count: count as u64,
        at_least,
    })
    .collect()
}

/// Displaced units of others, for whatever reason.
pub(super) fn foreign_displaced(evidence: &Evidence, own: &[v1::Job]) -> usize {
    let own: BTreeSet<JobId> = own.iter().map(|job| JobId(job.id)).collect();
    let mut displaced = BTreeSet::new();
    for event in evidence.log.events.values().flatten() {
        if let Ok(EventKind::UnitRequeued { job, unit, .. }) = EventKind::try_from(event.clone())
            && !own.contains(&job)
        {
            displaced.insert((job, unit));
        }
    }
    displaced.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::history::{Answer, Operation};
    use crate::run::load::{Delivery, Gap};

    fn ours(id: u64, request: u128, phase: v1::JobPhase) -> v1::Job {
        let tag = Tag::new("ada", None);
        v1::Job {
            id,
            spec: Some(tag.mark(RequestId(request), v1::JobSpec::default())),
            phase: phase.into(),
            ..v1::Job::default()
        }
    }

    fn operation(call: Call, job: u64, revision: u64, phase: Option<JobPhase>) -> Operation {
        Operation {
            user: 0,
            call,
            invoked_us: revision,
            completed_us: revision + 1,
            via: None,
            outcome: Outcome::Done(Answer {
                job: JobId(job),
                revision: Revision(revision),
                phase,
            }),
        }
    }

    fn watched(kinds: &[(u64, EventKind)]) -> WatchedEvents {
        let deliveries = kinds.iter().map(|(revision, kind)| Delivery {
            revision: Revision(*revision),
            events: vec![v1::Event::from(kind)],
            at_us: 0,
        });
        WatchedEvents {
            deliveries: deliveries.collect(),
            position: Revision(100),
            ..WatchedEvents::default()
        }
    }

    fn evidence(operations: Vec<Operation>, kinds: &[(u64, EventKind)]) -> Evidence {
        let watched = vec![watched(kinds)];
        Evidence {
            operations,
            log: union_of_events(&watched),
            watched,
            calls_until_us: 0,
            last: Revision(0),
            ledger: crate::run::lock_ledger::LockLedger::default(),
            journals: Vec::new(),
            episodes: Vec::new(),
        }
    }

    fn judged(evidence: &Evidence, own: &[v1::Job]) -> CheckResults {
        let played = RunContext {
            tag: &Tag::new("ada", None),
            allowed: &BTreeSet::new(),
            own,
            taken: &BTreeMap::new(),
            kept: None,
        };
        judge(evidence, &played)
    }

    fn broken(evidence: &Evidence, own: &[v1::Job]) -> Vec<Invariant> {
        let violations = judged(evidence, own).violations;
        violations.into_iter().map(|it| it.invariant).collect()
    }

    fn finished(job: u64) -> EventKind {
        EventKind::JobFinished {
            job: JobId(job),
            phase: JobPhase::Succeeded,
            reason: String::new(),
        }
    }

    #[test]
    fn acknowledged_jobs_exist_once_unless_pruned() {
        let submit = |request, job| operation(Call::Submit(RequestId(request)), job, job, None);
        let succeeded = v1::JobPhase::Succeeded;
        let own = [ours(3, 1, succeeded)];
        assert_eq!(broken(&evidence(vec![submit(1, 3)], &[]), &own), []);
        let gone = evidence(vec![submit(1, 3), submit(2, 4)], &[]);
        assert_eq!(broken(&gone, &own), [Invariant::Durability]);
        let pruned = [(9, EventKind::JobPruned { job: JobId(4) })];
        let forgotten = evidence(vec![submit(1, 3), submit(2, 4)], &pruned);
        assert_eq!(broken(&forgotten, &own), []);
        // The request created two jobs.
        let twice = [ours(3, 1, succeeded), ours(5, 1, succeeded)];
        let one = evidence(vec![submit(1, 3)], &[]);
        assert_eq!(broken(&one, &twice), [Invariant::Durability]);
    }

    #[test]
    fn a_read_must_have_seen_the_end_of_a_job_from_its_revision_on() {
        let read = |revision, phase| {
            let read = operation(Call::Read(JobId(3)), 3, revision, Some(phase));
            broken(&evidence(vec![read], &[(7, finished(3))]), &[])
        };
        assert_eq!(read(6, JobPhase::Running), []);
        assert_eq!(read(7, JobPhase::Succeeded), []);
        assert_eq!(read(8, JobPhase::Running), [Invariant::Linearizability]);
        assert_eq!(read(6, JobPhase::Succeeded), [Invariant::Linearizability]);
    }

    #[test]
    fn a_second_attempt_before_the_first_has_ended_is_noticed() {
        let (job, unit) = (JobId(3), UnitIndex(0));
        let placed = |epoch| EventKind::AttemptPlaced {
            job,
            unit,
            epoch: AttemptEpoch(epoch),
            number: 1,
            hosts: Vec::new(),
            gpus: 1,
            resumes_step: None,
        };
        let ended = EventKind::AttemptEnded {
            job,
            unit,
            epoch: AttemptEpoch(4),
            hosts: Vec::new(),
            detail: String::new(),
            attribution: None,
        };
        let well = [(4, placed(4)), (5, ended), (6, placed(6))];
        assert_eq!(broken(&evidence(Vec::new(), &well), &[]), []);
        let badly = [(4, placed(4)), (6, placed(6))];
        let found = broken(&evidence(Vec::new(), &badly), &[]);
        assert_eq!(found, [Invariant::OneAttempt]);
        // Its end may be among the events that no watcher received: neither a violation nor evidence.
        let mut with_gap = evidence(Vec::new(), &badly);
        let (after, until) = (Revision(4), Revision(5));
        with_gap.watched[0].gaps = vec![Gap { after, until }];
        with_gap.log = union_of_events(&with_gap.watched);
        let judged = judged(&with_gap, &[]);
        assert_eq!((judged.violations, judged.invalid.len()), (Vec::new(), 1));
    }

    #[test]
    fn an_empty_ledger_proves_nothing() {
        let kept = LedgerFolder {
            folder: "/ledger/chaos-1".into(),
            has_gpus: true,
        };
        let played = RunContext {
            tag: &Tag::new("ada", None),
            allowed: &BTreeSet::new(),
            own: &[],
            taken: &BTreeMap::new(),
            kept: Some(&kept),
        };
        let judged = judge(&evidence(Vec::new(), &[]), &played);
        assert_eq!(judged.invalid.len(), 1, "{:?}", judged.invalid);
        let mut gpus = judged.coverage.iter();
        let gpus = gpus.find(|it| it.what == "GPUs that tasks locked");
        assert!(gpus.is_some_and(|it| it.count < it.at_least));
    }

    #[test]
    fn a_job_that_does_not_end_is_noticed() {
        let own = [ours(3, 1, v1::JobPhase::Running)];
        let submit = operation(Call::Submit(RequestId(1)), 3, 3, None);
        let found = broken(&evidence(vec![submit], &[]), &own);
        assert_eq!(found, [Invariant::Progress]);
    }
}
