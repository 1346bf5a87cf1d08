//! Carries out what the agent decided: journal first, durably, then everything else in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use muster_core::agent::{Action, JournalRecord};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::error::Error;
use crate::journal::Journal;
use crate::limits::{ACTIONS_WAITING_MAX, JOURNAL_RETRY};
use crate::metrics;
use crate::run_id::RunId;
use crate::runner::Runner;

/// Batches that may share one sync of the journal.
const BATCHES_PER_SYNC_MAX: usize = 64;

/// Work in order.
enum Work {
    /// Actions of one decision.
    Actions(Vec<Action>),
    /// Replace the journal by these records, which say all that came before.
    Compact(Vec<JournalRecord>),
}

/// Where the decision loop hands in its actions.
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

/// Carries the actions out.
pub(crate) struct Executor {
    journal: Option<Journal>,
    runner: Runner,
    work: mpsc::Receiver<Work>,
    shared: Arc<Shared>,
}

impl ExecutorHandle {
    pub(crate) async fn carry_out(&self, actions: Vec<Action>) -> Result<(), Error> {
        self.hand_in(Work::Actions(actions)).await
    }

    /// Asks for a shorter journal.
    pub(crate) async fn compact(&self, records: Vec<JournalRecord>) -> Result<(), Error> {
        self.shared.wants_compaction.store(false, Ordering::Relaxed);
        self.hand_in(Work::Compact(records)).await
    }

    /// Whether the journal is long enough to be rewritten.
    pub(crate) fn wants_compaction(&self) -> bool {
        self.shared.wants_compaction.load(Ordering::Relaxed)
    }

    /// Returns when the worker's state should be sent.
    pub(crate) async fn status_due(&self) {
        self.shared.status_due.notified().await;
    }

    async fn hand_in(&self, work: Work) -> Result<(), Error> {
        self.work
            .send(work)
            .await
            .map_err(|_| Error::Ended("executor"))
    }
}

impl Executor {
    /// An executor and the handle to it.
    pub(crate) fn new(journal: Journal, runner: Runner) -> (Self, ExecutorHandle) {
        let (sender, work) = mpsc::channel(ACTIONS_WAITING_MAX);
        let shared = Arc::new(Shared::default());
        let executor = Self {
            journal: Some(journal),
            runner,
            work,
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
        let mut batches = Vec::with_capacity(BATCHES_PER_SYNC_MAX);
        while self
            .work
            .recv_many(&mut batches, BATCHES_PER_SYNC_MAX)
            .await
            > 0
        {
            let mut records = Vec::new();
            let mut rest = Vec::new();
            for work in batches.drain(..) {
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
                        // It says all that was decided before, these records included.
                        records.clear();
                        self.with_journal("rewriting", move |journal| journal.compact(&all))
                            .await;
                    }
                }
            }
            // Durable earlier than it must be is as good: no action overtakes its own record.
            if !records.is_empty() {
                let began = Instant::now();
                self.with_journal("writing", move |journal| journal.append(&records))
                    .await;
                metrics::journal_synced(began.elapsed());
            }
            for action in rest {
                self.perform(action);
            }
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
                self.runner.start(*assignment, deadline);
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
            Action::SendStatus => self.shared.status_due.notify_one(),
            // Taken out before.
            Action::Journal(_) => {}
        }
    }

    /// Uses the journal off the runtime's threads, again and again until the disk takes it: meanwhile
    /// nothing is started, and leases go on.
    async fn with_journal<F>(&mut self, operation: &'static str, mut write: F)
    where
        F: FnMut(&mut Journal) -> Result<(), crate::journal::JournalError> + Send + 'static,
    {
        loop {
            let Some(mut journal) = self.journal.take() else {
                unreachable!("it is put back below, or this task ends");
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
            match outcome {
                Ok(()) => break,
                Err(error) => {
                    tracing::error!(%error, operation, "the journal's disk refuses: trying again");
                    tokio::time::sleep(JOURNAL_RETRY).await;
                }
            }
        }
        if self.journal.as_ref().is_some_and(Journal::wants_compaction) {
            self.shared.wants_compaction.store(true, Ordering::Relaxed);
        }
    }
}
