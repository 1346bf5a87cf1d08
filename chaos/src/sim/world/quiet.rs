//! Quiet phase: all faults are repaired, and the cluster must become idle.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use muster_engine::state::{Job, State};
use muster_model::command::{BlockTarget, Command};
use muster_model::health::Component;
use muster_model::host::{Gpu, Host};
use muster_model::ids::{JobId, RequestId, RequestKey};
use muster_model::lifecycle::JobPhase;
use muster_planner::{Blocker, blocker};
use muster_raft_store::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::sim::results::diagnosis::describe_stuck;
use crate::sim::results::report::Violation;
use crate::sim::world::World;

/// Maximum time for replicas to reach one revision.
const REST_MAX: Duration = Duration::from_secs(30);
/// First request id of the operator's unblocks; those of users are random.
const OPERATORS_REQUESTS: u128 = 1 << 100;
/// Timeout of one unblock.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

impl World {
    /// Waits until every acknowledged job has ended and no process is left, as long as jobs keep ending.
    pub(super) async fn quiet(&self, users: Vec<oneshot::Receiver<()>>) {
        if !self.goes_on() {
            return;
        }
        let repaired = Instant::now();
        let tempo = self.options.scale.tempo;
        let wait_max = tempo.quiet_max();
        let mut deadline = repaired + wait_max;
        self.recover(repaired).await;
        for finished in users {
            if tokio::time::timeout_at(deadline, finished).await.is_err() {
                self.checkers.violate(Violation::Stuck(
                    "a user's request is never answered".to_owned(),
                ));
                return;
            }
        }
        self.heal(repaired).await;
        self.judge_healed();
        let mut fewest = usize::MAX;
        let mut hopeless = BTreeSet::new();
        while self.goes_on() {
            let (jobs, processes) = self.left(&mut hopeless);
            if jobs + processes == 0 {
                break;
            }
            // The time depends on the number of jobs; jobs that never end remain when all others have
            // ended.
            if jobs < fewest {
                fewest = jobs;
                deadline = Instant::now() + wait_max;
            }
            self.give_back().await;
            if Instant::now() > deadline {
                self.checkers
                    .violate(Violation::Stuck(describe_stuck(self)));
                return;
            }
            tokio::time::sleep(tempo.quiet_look()).await;
        }
        // Followers apply committed entries at the next heartbeat. Checks, probations and their ticks
        // continue although no job is left: entries committed meanwhile are awaited as well.
        let rest = Instant::now() + REST_MAX;
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let is_told = self.checkers.with(|seen| seen.watching.behind().is_empty());
            if (self.is_at_one_revision() && is_told) || Instant::now() > rest {
                return;
            }
        }
    }

    fn is_at_one_revision(&self) -> bool {
        let up = self.members_up();
        let mut revisions = { up.iter() }.map(|(_, handle)| handle.with_state(|it| it.revision));
        let first = revisions.next();
        revisions.all(|revision| Some(revision) == first)
    }

    /// Acts as the operator after all repairs: lifts the remaining blocks by rules, and resumes jobs whose
    /// resumption was known only to a lost group.
    pub async fn give_back(&self) {
        let went_back = self.checkers.with(|seen| seen.was_restored);
        let author = || "operator".to_owned();
        let request = || {
            let number = self.operators_requests.fetch_add(1, Ordering::Relaxed);
            RequestKey::of(RequestId(OPERATORS_REQUESTS + u128::from(number)))
        };
        for (_, handle) in self.members_up() {
            let (targets, suspended) = handle.with_state(|state| {
                let suspended = went_back.then(|| suspended(state));
                (blocked(state), suspended.unwrap_or_default())
            });
            let unblock = targets.into_iter().map(|target| Command::Unblock {
                request: request(),
                target,
                author: author(),
                planned: false,
            });
            let mut commands: Vec<Command> = unblock.collect();
            let resume = suspended.into_iter().map(|job| Command::ResumeJob {
                request: request(),
                job,
                author: author(),
                reason: "its resumption was lost".to_owned(),
            });
            commands.extend(resume);
            for command in commands {
                // A follower refuses, and the next replica is asked; repeated unblocks are refused.
                let proposed = handle.propose(vec![command]);
                drop(tokio::time::timeout(ANSWER_TIMEOUT, proposed).await);
            }
        }
    }

    /// Number of acknowledged jobs that have not ended, according to the replica that knows of the fewest
    /// ends, and of running processes. Jobs that can never start are excluded, and searched for when
    /// nothing runs: to explain why a job waits costs a round of planning.
    fn left(&self, hopeless: &mut BTreeSet<JobId>) -> (usize, usize) {
        let (running, jobs) = self.checkers.with(|seen| {
            let jobs: Vec<JobId> = seen.acknowledged.jobs().collect();
            (seen.gpu_ledger.running(), jobs)
        });
        let unended = |handle: &Handle<State>| {
            handle.with_state(|state| {
                let ended = |job| state.job(job).is_some_and(|job| job.phase.is_terminal());
                let jobs = jobs.iter().copied();
                jobs.filter(|job| !hopeless.contains(job) && !ended(*job))
                    .collect::<Vec<JobId>>()
            })
        };
        let members = self.members_up();
        let lists = members.iter().map(|(_, handle)| (unended(handle), handle));
        let Some((mut left, handle)) = lists.max_by_key(|(jobs, _)| jobs.len()) else {
            return (0, running);
        };
        if running == 0 {
            handle.with_state(|state| {
                // One job that can start is enough to keep waiting.
                while let Some(job) = left.pop_if(|job| never_can(state, *job)) {
                    hopeless.insert(job);
                }
                if left.is_empty() {
                    left = hopeless
                        .extract_if(.., |job| !never_can(state, *job))
                        .collect();
                }
            });
        }
        (left.len(), running)
    }
}

/// Suspended jobs.
fn suspended(state: &State) -> Vec<JobId> {
    let jobs = state.jobs.values();
    let suspended = jobs.filter(|job| job.suspension.is_some() && !job.phase.is_terminal());
    suspended.map(|job| job.id).collect()
}

/// Components out of placement, or with work held off by rules.
fn blocked(state: &State) -> Vec<BlockTarget> {
    let is_held = |component: &Component| {
        let condition = state.health.condition(component);
        condition.is_some_and(|condition| !condition.holds.is_empty())
    };
    let of_host = |host: &Host| {
        let is_kept = |gpu: &&Gpu| gpu.block.is_some() || is_held(&Component::Gpu(gpu.uuid));
        let gpus = host.gpus.iter().filter(is_kept);
        let gpus = gpus.map(|gpu| BlockTarget::Gpu(gpu.uuid));
        let mut parts = state.health.adapters_of(host.id);
        parts.push(Component::Host(host.id));
        let is_kept = host.block.is_some() || parts.iter().any(is_held);
        let itself = is_kept.then(|| BlockTarget::Host(host.name.to_string()));
        gpus.chain(itself).collect::<Vec<_>>()
    };
    state
        .hosts
        .values()
        .flat_map(|host| of_host(host))
        .collect()
}

/// Whether a job can never start. Users also request more than the cluster could ever provide; such a job
/// waits, reports the reason, and blocks only jobs that depend on it.
fn never_can(state: &State, job: JobId) -> bool {
    let never = |blocker| match blocker {
        Blocker::NoSuchHost { .. } | Blocker::ExceedsCluster { .. } => true,
        // A limit that the job exceeds on its own.
        Blocker::Limit(limit) => !state.index.usage.contains_key(limit.queue.as_str()),
        // Dependencies are always older jobs, so the recursion ends.
        Blocker::Dependencies { open, .. } => open.iter().all(|on| never_can(state, on.job)),
        _ => false,
    };
    let is_queued = |known: &Job| known.phase == JobPhase::Queued;
    state.job(job).is_some_and(is_queued) && blocker(state, job, state.time).is_some_and(never)
}
