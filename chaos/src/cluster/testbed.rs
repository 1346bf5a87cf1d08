//! A local cluster under test: with a client, a log of its events, and a timeline.

use std::sync::Arc;

use muster_client::Client;
use muster_model::event::{Event, EventKind};
use muster_model::ids::JobId;
use tokio::task::JoinHandle;
use tokio::time::Duration;

use crate::cluster::observer::{EventLog, ReceivedEvent, observe};
use crate::cluster::timeline::{LineKind, Timeline};
use crate::cluster::{
    ClusterError, ClusterOptions, Disruption, EventTimeout, LocalCluster, TestbedError,
    processes_of,
};

/// Maximum wait for an expected event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// A running cluster.
#[derive(Debug)]
pub(crate) struct Testbed {
    /// The cluster.
    pub(crate) cluster: LocalCluster,
    /// A client of all replicas.
    pub(crate) client: Client,
    /// All events since the start of the cluster.
    pub(crate) events: Arc<EventLog>,
    /// The timeline, which shows important events.
    timeline: Timeline,
    /// Whether the folder is kept.
    keep: bool,
    watcher: JoinHandle<()>,
}

impl Testbed {
    /// Starts a cluster; does not wait until it is ready.
    pub(crate) async fn start(
        options: ClusterOptions,
        timeline: Timeline,
    ) -> Result<Self, TestbedError> {
        let keep = options.keep;
        let cluster = LocalCluster::start(options)?;
        let folder = cluster.folder().display();
        timeline.print_line(LineKind::Stage, &format!("data and logs: {folder}"));
        let client = cluster.client().await?;
        let events = Arc::new(EventLog::default());
        let watcher = observe(client.clone(), Arc::clone(&events), timeline);
        Ok(Self {
            cluster,
            client,
            events,
            timeline,
            keep,
            watcher,
        })
    }

    /// Prints a line on the timeline.
    pub(crate) fn print_line(&self, kind: LineKind, text: &str) {
        self.timeline.print_line(kind, text);
    }

    /// Waits for an event from position `from` on.
    ///
    /// # Errors
    /// [`EventTimeout`] if it does not happen in a minute.
    pub(crate) async fn wait_for(
        &self,
        what: &str,
        from: usize,
        expected: impl Fn(&Event) -> bool,
    ) -> Result<ReceivedEvent, EventTimeout> {
        let waited = self.events.wait_for(what, from, EVENT_TIMEOUT, expected);
        waited.await
    }

    /// Waits for an event of a job from position `from` on.
    ///
    /// # Errors
    /// [`EventTimeout`] if it does not happen in a minute.
    pub(crate) async fn wait_for_job(
        &self,
        what: &str,
        from: usize,
        job: JobId,
        expected: impl Fn(&EventKind) -> bool,
    ) -> Result<ReceivedEvent, EventTimeout> {
        let is_wanted = |event: &Event| event.kind.job() == Some(job) && expected(&event.kind);
        self.wait_for(what, from, is_wanted).await
    }

    /// Injects a disruption, with a line on the timeline.
    ///
    /// # Errors
    /// If it cannot be injected.
    pub(crate) fn inject(&mut self, disruption: &Disruption) -> Result<(), ClusterError> {
        let what = self.cluster.describe(disruption);
        self.timeline.print_line(LineKind::Fault, &what);
        self.cluster.inject(disruption)
    }

    /// Repairs a disruption, with a line on the timeline.
    ///
    /// # Errors
    /// If it cannot be repaired.
    pub(crate) fn repair(&mut self, disruption: &Disruption) -> Result<(), ClusterError> {
        let repaired = format!("repaired: {}", self.cluster.describe(disruption));
        self.timeline.print_line(LineKind::Stage, &repaired);
        self.cluster.repair(disruption)
    }

    /// Ends everything and checks that nothing is left.
    ///
    /// # Errors
    /// If something is left.
    pub(crate) async fn tear_down(self) -> Result<(), TestbedError> {
        self.watcher.abort();
        let folder = self.cluster.folder().to_owned();
        let cluster = self.cluster;
        let stopped = tokio::task::spawn_blocking(move || cluster.stop());
        stopped.await.map_err(TestbedError::Panicked)??;
        let left = processes_of(&folder);
        if !left.is_empty() {
            let text = format!("processes are still running: {left:?}");
            return Err(TestbedError::Left(text));
        }
        if self.keep {
            let kept = format!("kept for inspection: {}", folder.display());
            self.timeline.print_line(LineKind::Stage, &kept);
        } else if folder.exists() {
            let text = format!("{} is left behind", folder.display());
            return Err(TestbedError::Left(text));
        }
        Ok(())
    }
}
