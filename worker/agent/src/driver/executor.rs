//! Executor of the agent's decisions: journal records first, durably, then all other actions in order.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use muster_control::agent::{Action, JournalRecord};
use muster_model::health::Order;
use muster_model::ids::UnitId;
use muster_supervisor::RunId;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::error::Error;
use crate::journal::{Journal, JournalError};
use crate::limits::{ACTIONS_WAITING_MAX, JOURNAL_RETRY};
use crate::metrics;
use crate::tasks::runner::Runner;

/// Batches that may share one sync of the journal.
const BATCHES_PER_SYNC_MAX: usize = 64;

/// Work in order.
enum Work {
    /// Actions of one decision.
    Actions(Vec<Action>),
    /// Replaces the journal by these records, which cover all earlier ones.
    Compact(Vec<JournalRecord>),
}

/// Queue through which the decision loop submits its actions.
#[derive(Debug)]
pub(crate) struct ExecutorHandle {
    work: mpsc::Sender<Work>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    status_due: Notify,
    wants_compaction: AtomicBool,
}

/// Executes the actions.
pub(crate) struct Executor {
    journal: Option<Journal>,
    runner: Runner,
    work: mpsc::Receiver<Work>,
    /// Work that needs the journal and arrived while its disk failed.
    backlog: Vec<Work>,
    /// Attempts whose start waits for the journal: further actions for them wait behind it.
    starting: BTreeSet<RunId>,
    /// Queue of repairs and checks.
    works: mpsc::Sender<Order>,
    shared: Arc<Shared>,
}

impl ExecutorHandle {
    pub(crate) async fn carry_out(&self, actions: Vec<Action>) -> Result<(), Error> {
        self.enqueue(Work::Actions(actions)).await
    }

    /// Requests compaction of the journal.
    pub(crate) async fn compact(&self, records: Vec<JournalRecord>) -> Result<(), Error> {
        self.shared.wants_compaction.store(false, Ordering::Relaxed);
        self.enqueue(Work::Compact(records)).await
    }

    /// Whether the journal is long enough to be rewritten.
    pub(crate) fn wants_compaction(&self) -> bool {
        self.shared.wants_compaction.load(Ordering::Relaxed)
    }

    /// Returns when the worker's state should be sent.
    pub(crate) async fn status_due(&self) {
        self.shared.status_due.notified().await;
    }

    async fn enqueue(&self, work: Work) -> Result<(), Error> {
        self.work
            .send(work)
            .await
            .map_err(|_| Error::Ended("executor"))
    }
}

impl Executor {
    /// An executor and the handle to it.
    pub(crate) fn new(
        journal: Journal,
        runner: Runner,
        repairs: mpsc::Sender<Order>,
    ) -> (Self, ExecutorHandle) {
        let (sender, work) = mpsc::channel(ACTIONS_WAITING_MAX);
        let shared = Arc::new(Shared::default());
        let executor = Self {
            journal: Some(journal),
            runner,
            work,
            backlog: Vec::new(),
            starting: BTreeSet::new(),
            works: repairs,
            shared: Arc::clone(&shared),
        };
        let handle = ExecutorHandle {
            work: sender,
            shared,
        };
        (executor, handle)
    }

    /// Runs until the handle is gone.
    pub(crate) async fn run(mut self) {
        loop {
            let mut batches = std::mem::take(&mut self.backlog);
            if batches.is_empty()
                && self
                    .work
                    .recv_many(&mut batches, BATCHES_PER_SYNC_MAX)
                    .await
                    == 0
            {
                return;
            }
            self.carry_out(batches).await;
        }
    }

    async fn carry_out(&mut self, batches: Vec<Work>) {
        self.starting = batches.iter().flat_map(starts).collect();
        let mut records = Vec::new();
        let mut rest = Vec::new();
        for work in batches {
            match work {
                Work::Actions(actions) => {
                    for action in actions {
                        match action {
                            Action::Journal(record) => records.push(record),
                            other => rest.push(other),
                        }
                    }
                }
                Work::Compact(all) => {
                    // The compacted journal covers earlier decisions, these records included.
                    records.clear();
                    self.with_journal("rewriting", &mut rest, move |journal| journal.compact(&all))
                        .await;
                }
            }
        }
        // Writing a record earlier than necessary is harmless: no action overtakes its own record.
        if !records.is_empty() {
            let began = Instant::now();
            self.with_journal("writing", &mut rest, move |journal| {
                journal.append(&records)
            })
            .await;
            metrics::journal_synced(began.elapsed());
        }
        for action in rest {
            self.perform(action);
        }
    }

    fn perform(&self, action: Action) {
        match action {
            Action::Start {
                assignment,
                deadline,
            } => {
                let key = assignment.key;
                tracing::info!(job = %key.job, task = %key.task, epoch = %assignment.epoch, "starting a task");
                metrics::task_started();
                self.runner.start_spans().journalled(RunId::of(&assignment));
                self.runner.start(*assignment, deadline);
            }
            Action::Begin {
                key,
                epoch,
                master_port,
            } => {
                tracing::info!(job = %key.job, task = %key.task, %epoch, master_port, "starting a prepared task");
                self.runner.begin(RunId { key, epoch }, master_port);
            }
            Action::Renew {
                key,
                epoch,
                rendezvous,
            } => {
                tracing::info!(job = %key.job, task = %key.task, %epoch, "the rendezvous of a task's gang changed");
                self.runner.renew(RunId { key, epoch }, *rendezvous);
            }
            Action::Suspend {
                key,
                epoch,
                suspended,
            } => {
                tracing::info!(job = %key.job, task = %key.task, %epoch, suspended, "suspending or resuming a task");
                self.runner.suspend(RunId { key, epoch }, suspended);
            }
            Action::Stop {
                key,
                epoch,
                reason,
                grace_ms,
            } => {
                tracing::info!(job = %key.job, task = %key.task, %epoch, reason, grace_ms, "stopping a task");
                self.runner.stop(RunId { key, epoch }, reason, grace_ms);
            }
            Action::ExtendLease {
                key,
                epoch,
                deadline,
            } => self.runner.extend(RunId { key, epoch }, deadline),
            Action::Release { key, epoch } => self.runner.release(RunId { key, epoch }),
            Action::RemoveCheckpoint {
                key,
                unit,
                path,
                kept,
            } => self
                .runner
                .remove_checkpoint(UnitId::new(key.job, unit), path, kept),
            Action::HealthWork(order) => {
                if let Err(error) = self.works.try_send(order) {
                    tracing::error!(%error, "dropped a repair or check: the queue is full");
                }
            }
            Action::SendStatus => self.shared.status_due.notify_one(),
            // Journal records were taken out before.
            Action::Journal(_) => {}
        }
    }

    /// Uses the journal off the runtime's threads, and retries until the disk accepts it. Meanwhile nothing
    /// is started; actions of `rest` and new ones that need no record are executed.
    async fn with_journal<F>(
        &mut self,
        operation: &'static str,
        rest: &mut Vec<Action>,
        mut write: F,
    ) where
        F: FnMut(&mut Journal) -> Result<(), JournalError> + Send + 'static,
    {
        loop {
            let Some(mut journal) = self.journal.take() else {
                unreachable!("the journal is put back below, or this task ends");
            };
            let written = tokio::task::spawn_blocking(move || {
                let outcome = write(&mut journal);
                (journal, outcome, write)
            })
            .await;
            let (journal, outcome, again) = match written {
                Ok(written) => written,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            };
            self.journal = Some(journal);
            write = again;
            let Err(error) = outcome else { break };
            let cause = error.source().map(ToString::to_string);
            tracing::error!(%error, cause, operation, "writing the journal failed; retrying");
            *rest = self.overtake(std::mem::take(rest));
            self.serve(JOURNAL_RETRY).await;
        }
        if self.journal.as_ref().is_some_and(Journal::wants_compaction) {
            self.shared.wants_compaction.store(true, Ordering::Relaxed);
        }
    }

    /// Accepts work for a while and executes what does not need the journal: leases must be extended, and
    /// what fills the disk may be the very task that is to be stopped and removed.
    async fn serve(&mut self, duration: Duration) {
        let end = Instant::now() + duration;
        while self.backlog.len() < ACTIONS_WAITING_MAX {
            let Ok(Some(work)) = timeout_at(end, self.work.recv()).await else {
                break;
            };
            let left = match work {
                Work::Actions(actions) => Work::Actions(self.overtake(actions)),
                compact @ Work::Compact(_) => compact,
            };
            if !matches!(&left, Work::Actions(actions) if actions.is_empty()) {
                self.backlog.push(left);
            }
        }
        sleep_until(end).await;
    }

    /// Executes the actions that need no record and returns those that must wait, in order. Actions for a
    /// task whose start waits, wait behind it.
    fn overtake(&mut self, actions: Vec<Action>) -> Vec<Action> {
        let mut left = Vec::new();
        for action in actions {
            let must_wait = match &action {
                Action::Journal(_) => true,
                Action::Start { assignment, .. } => {
                    self.starting.insert(RunId::of(assignment));
                    true
                }
                Action::Begin { key, epoch, .. }
                | Action::Renew { key, epoch, .. }
                | Action::Suspend { key, epoch, .. }
                | Action::Stop { key, epoch, .. }
                | Action::ExtendLease { key, epoch, .. }
                | Action::Release { key, epoch } => self.starting.contains(&RunId {
                    key: *key,
                    epoch: *epoch,
                }),
                Action::RemoveCheckpoint { .. } | Action::HealthWork(_) | Action::SendStatus => {
                    false
                }
            };
            if must_wait {
                left.push(action);
            } else {
                self.perform(action);
            }
        }
        left
    }
}

/// The attempts that `work` starts.
fn starts(work: &Work) -> impl Iterator<Item = RunId> + '_ {
    let actions = match work {
        Work::Actions(actions) => actions.as_slice(),
        Work::Compact(_) => &[],
    };
    actions.iter().filter_map(|action| match action {
        Action::Start { assignment, .. } => Some(RunId::of(assignment)),
        _ => None,
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use muster_model::desired::TaskAssignment;
    use muster_model::ids::AttemptEpoch;
    use muster_supervisor::TaskDirectory;
    use muster_supervisor::lease::clock::LeaseClock;

    use super::*;
    use crate::inbox::inbox;
    use crate::testing;

    /// Waits until a task's directory is removed, as a release does.
    async fn removed(directory: &TaskDirectory) {
        let gone = tokio::time::timeout(Duration::from_secs(20), async {
            while directory.path().exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        gone.await.unwrap();
    }

    #[tokio::test]
    async fn while_the_disk_refuses_orders_wait_behind_their_start_and_others_overtake() {
        let home = tempfile::tempdir().unwrap();
        let config = testing::runner_config(home.path());
        let mut assignment = testing::assignment();
        let [starts, ends] = [11, 12].map(|epoch| {
            assignment.epoch = AttemptEpoch(epoch);
            let directory = TaskDirectory::below(&config.tasks, RunId::of(&assignment));
            std::fs::create_dir_all(directory.path()).unwrap();
            (assignment.clone(), directory)
        });
        let release = |assignment: &TaskAssignment| Action::Release {
            key: assignment.key,
            epoch: assignment.epoch,
        };
        let start = Action::Start {
            assignment: Box::new(starts.0.clone()),
            deadline: LeaseClock::start().now(),
        };
        let disk = home.path().join("disk");
        std::fs::create_dir(&disk).unwrap();
        let (journal, _) = Journal::open(&disk.join("journal")).unwrap();
        let (outbox, mut reports) = inbox();
        let runner = testing::runner(config, outbox);
        let (works, _ordered) = mpsc::channel(1);
        let (executor, handle) = Executor::new(journal, runner, works);
        // The failed rewrite is first in the queue.
        std::fs::remove_dir_all(&disk).unwrap();
        handle.compact(Vec::new()).await.unwrap();
        handle.carry_out(vec![start]).await.unwrap();
        tokio::spawn(executor.run());
        tokio::task::yield_now().await;
        let orders = vec![release(&starts.0), release(&ends.0)];
        handle.carry_out(orders).await.unwrap();

        removed(&ends.1).await;
        assert!(starts.1.path().exists(), "released before its start");
        assert!(reports.try_recv().is_err(), "started without a record");
        std::fs::create_dir(&disk).unwrap();
        assert!(reports.recv().await.is_some());
        removed(&starts.1).await;
    }
}
