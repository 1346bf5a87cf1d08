//! Start of one task: from its turn on this host to the end of the connection to its supervisor.

use std::io;
use std::sync::Arc;

use muster_control::agent::SupervisorReport;
use muster_model::desired::TaskAssignment;
use muster_monitor::gpu::Handover;
use muster_supervisor::{AssignedCpus, RunId, TaskDirectory, TaskIdentity, TaskSpec};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::inbox::{InboxItem, Outbox};
use crate::tasks::cpus::CpuGrant;
use crate::tasks::runner::checkpoint_folders::CheckpointFolders;
use crate::tasks::runner::idle::IdleSupervisors;
use crate::tasks::runner::launch::{self, Launched, LeaseTerms};
use crate::tasks::runner::link::{Orders, SupervisorLink};
use crate::tasks::runner::scratch::ScratchFolders;
use crate::tasks::runner::server::SupervisorServer;
use crate::tasks::runner::{ConnectionEnd, RunnerConfig, ended, send};

/// A task to start, and the parts of the runner that its start uses.
///
/// It holds no handles: they would keep the channels of every other task open.
pub(super) struct Start {
    pub(super) id: RunId,
    pub(super) assignment: TaskAssignment,
    /// Milliseconds before the end of its lease at which the task is asked to stop; 0: it is not asked.
    pub(super) lease_warning_ms: u64,
    /// An earlier release of the same attempt, if it is still in progress.
    pub(super) release: Option<JoinHandle<()>>,
    /// The CPUs that the task is bound to.
    pub(super) cpus: Option<CpuGrant>,
    pub(super) config: Arc<RunnerConfig>,
    pub(super) server: Arc<SupervisorServer>,
    pub(super) idle: IdleSupervisors,
    pub(super) scratch: ScratchFolders,
    pub(super) checkpoint_folders: CheckpointFolders,
    pub(super) handover: Handover,
    pub(super) disk: Arc<Semaphore>,
}

impl Start {
    /// Starts the supervisor once the task's directory and its GPUs are free, and serves the connection to it
    /// until that ends.
    ///
    /// A failed start is a fault of the host (its disk is full, say), not of the job: it is reported as
    /// vanished, because nothing has run, and does not count against the job.
    pub(super) async fn run(mut self, mut orders: Orders, inbox: Outbox) -> ConnectionEnd {
        let id = self.id;
        ended(self.release.take()).await;
        let gpus_free = self.handover.free(&self.assignment.gpus);
        if let Err(detail) = orders.unless_stopped(gpus_free).await {
            return vanished(id, detail, &inbox).await;
        }
        // Waiting may have taken longer than the lease had.
        let lease = LeaseTerms {
            deadline_boottime_ms: orders.deadline_boottime_ms(),
            warning_ms: self.lease_warning_ms,
        };
        let identity = self
            .config
            .accounts
            .identity_of(&self.assignment.user)
            .await;
        let directory = TaskDirectory::below(&self.config.tasks, id);
        let (idle, disk) = (self.idle.clone(), Arc::clone(&self.disk));
        let cpus = self.cpus.take();
        let place = cpus.as_ref().map(|grant| grant.place().clone());
        let turn = disk.acquire().await;
        let launched = spawn_blocking(move || self.launch(identity, lease, place)).await;
        drop(turn);
        match launched.unwrap_or_else(|error| Err(error.into())) {
            Ok((launched, spec)) => {
                let link = SupervisorLink::new(id, directory, orders, inbox);
                let left = link.holding(cpus).returning_to(idle).run(launched).await;
                let spec = Some(spec);
                ConnectionEnd { spec, ..left }
            }
            Err(error) => {
                tracing::error!(%id, %error, "starting a supervisor failed");
                let detail = format!("starting its supervisor failed: {error}");
                vanished(id, detail, &inbox).await
            }
        }
    }

    /// Writes the task's directory and starts its supervisor. Blocks.
    fn launch(
        self,
        identity: TaskIdentity,
        lease: LeaseTerms,
        cpus: Option<AssignedCpus>,
    ) -> io::Result<(Launched, Box<TaskSpec>)> {
        let mut spec = launch::spec(&self.config, self.assignment, identity, lease, cpus);
        let folder = spec.checkpoint_directory.clone();
        // In a gang, other members may have written into it.
        let is_own = spec.assignment.rank.world_size <= 1;
        spec.checkpoint_directory_is_new = is_own && self.checkpoint_folders.give(&folder, self.id);
        let launched = launch::launch(&self.config, &self.server, &self.scratch, &self.idle, &spec);
        if launched.is_err() && is_own {
            self.checkpoint_folders.take_back(&folder, self.id);
        }
        launched.map(|launched| (launched, Box::new(spec)))
    }
}

/// Reports that a task has no supervisor and never ran.
async fn vanished(id: RunId, detail: String, inbox: &Outbox) -> ConnectionEnd {
    let report = SupervisorReport::Vanished { detail };
    send(inbox, InboxItem::Supervisor(id, report)).await;
    ConnectionEnd::default()
}
