//! `muster debug bundle`.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use muster_client::{Client, ClientError, WatchFilter, WatchUpdate};
use muster_documents::{
    Component, DebugBundle, Event, Explanation, Gpu, Host, HostNames, Job, MissingPart, Queue,
    Status,
};
use muster_model::ids::{JobId, Revision};
use muster_proto::v1;
use muster_proto::v1::debug_target::Process;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::command::debug::collection::Collection;
use crate::command::debug::{ANSWER_MAX, client_of};
use crate::connection::{Options, current_user};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, note, render_document, to_json_line};

/// Waiting jobs that are explained.
const EXPLAINED_MAX: usize = 20;
/// Jobs that are listed.
const JOBS_MAX: usize = 1_000;
/// Revisions whose events are collected, the newest.
const REVISIONS_MAX: u64 = 5_000;
/// Limit of the time to read events: a busy cluster would never reach their end.
const EVENTS_WAIT: Duration = Duration::from_secs(10);
/// Workers asked by default.
const WORKERS_MAX: usize = 16;
/// Stale reads work without a leader, which may be the problem to diagnose.
const STALE: v1::Consistency = v1::Consistency::Stale;

/// `muster debug bundle`
///
/// Collects versions, settings, logs and metrics of replicas and workers, and the cluster's state as shown by
/// lists. It contains no tokens, keys, task secrets, commands or environments of jobs; nevertheless review it
/// before sharing it. Missing parts are listed in its manifest.json. If no process answers, the file is still
/// written, and the command fails.
#[derive(Debug, Args)]
pub(crate) struct Bundle {
    /// The file; by default muster-debug-TIME.tar.gz in this folder
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The worker of this host, by name; repeatable. By default up to 16, unhealthy hosts first
    #[arg(long, value_name = "HOST")]
    worker: Vec<String>,
}

impl Bundle {
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let screen = options.screen();
        let now = screen.now();
        let stamp = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let folder = format!("muster-debug-{stamp}");
        let path =
            { self.out.clone() }.unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.gz")));
        let client = options.connect().await?;
        let named = |error| Failure::new(format!("{}: {error}", path.display()));
        let file = File::create_new(&path).map_err(named)?;
        let mut collector = Collector {
            client,
            author: current_user(),
            collection: Collection::default(),
        };
        let reached = collector.collect(&self.worker).await;
        let collection = collector.collection;
        let time_s = u64::try_from(now.as_second()).unwrap_or_default();
        collection.write(BufWriter::new(file), &folder, &now.to_string(), time_s)?;
        for (name, why) in collection.missing() {
            note(&format!("{name} is missing: {why}"));
        }
        let (path, files) = (path.display().to_string(), collection.count());
        screen.report(&match screen.format {
            Format::Table | Format::Wide => {
                format!("{path}: {files} files; review it before sharing it\n")
            }
            Format::Name => format!("{path}\n"),
            format => {
                let missing = collection.missing().iter();
                let missing = missing.map(|(name, why)| MissingPart {
                    name: name.clone(),
                    why: why.clone(),
                });
                let bundle = DebugBundle {
                    file: path,
                    files,
                    missing: missing.collect(),
                };
                render_document(format, &bundle)?
            }
        })?;
        reached?;
        Ok(Exit::Ok)
    }
}

/// Collects one part after the other and records failures.
struct Collector {
    client: Client,
    author: String,
    collection: Collection,
}

impl Collector {
    /// # Errors
    /// The failure of all replicas to answer.
    async fn collect(&mut self, workers: &[String]) -> Result<(), ClientError> {
        let client = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "os": std::env::consts::OS,
            "architecture": std::env::consts::ARCH,
        });
        self.collection
            .add("client.json", Ok::<_, ClientError>(client));
        let own_files = self.collection.count();
        let status = self.client.status(STALE).await;
        self.collection
            .add("status.json", status.clone().map(Status::from));
        let hosts = self.hosts().await;
        self.lists().await;
        self.jobs().await;
        if let Ok(status) = &status {
            self.events(status.revision, &hosts).await;
            for replica in &status.replicas {
                self.replica(replica).await;
            }
        }
        for host in chosen(workers, &hosts, &mut self.collection) {
            let folder = format!("workers/{host}");
            let answer = self.client.debug_info(&self.author, Process::Host(host));
            let answer = timeout(ANSWER_MAX, answer).await;
            self.process(
                &folder,
                answer
                    .map_err(|_| silent())
                    .and_then(|answer| answer.map_err(text)),
            );
        }
        match status {
            Err(error) if self.collection.count() == own_files => Err(error),
            _ => Ok(()),
        }
    }

    async fn hosts(&mut self) -> Vec<v1::Host> {
        let request = v1::ListHostsRequest {
            consistency: STALE.into(),
            ..v1::ListHostsRequest::default()
        };
        let (hosts, failed) = split(self.client.list_hosts(request).await);
        let views = hosts.iter().cloned().map(Host::from);
        self.list("hosts.json", views.collect::<Vec<_>>(), failed);
        hosts
    }

    async fn lists(&mut self) {
        let request = v1::ListGpusRequest {
            consistency: STALE.into(),
            ..v1::ListGpusRequest::default()
        };
        let (gpus, failed) = split(self.client.list_gpus(request).await);
        let gpus: Vec<Gpu> = gpus.into_iter().map(Gpu::from).collect();
        self.list("gpus.json", gpus, failed);
        let (queues, failed) = split(self.client.list_queues(STALE).await);
        let queues: Vec<Queue> = queues.into_iter().map(Queue::from).collect();
        self.list("queues.json", queues, failed);
        let health = self.client.health(STALE).await.map(|health| {
            let components = health.components.into_iter().map(Component::from);
            components.collect::<Vec<_>>()
        });
        self.collection.add("health.json", health);
    }

    /// Unfinished jobs, and explanations of the waiting ones.
    async fn jobs(&mut self) {
        let live = [
            v1::JobPhase::Queued,
            v1::JobPhase::Running,
            v1::JobPhase::Cancelling,
        ];
        let request = v1::ListJobsRequest {
            phases: live.into_iter().map(Into::into).collect(),
            consistency: STALE.into(),
            ..v1::ListJobsRequest::default()
        };
        let (jobs, failed) = split(self.client.list_jobs(request, JOBS_MAX).await);
        let waiting = jobs
            .iter()
            .filter(|job| job.phase() == v1::JobPhase::Queued);
        let waiting: Vec<u64> = waiting.map(|job| job.id).take(EXPLAINED_MAX).collect();
        let jobs: Vec<Job> = jobs.into_iter().map(Job::from).collect();
        self.list("jobs.json", jobs, failed);
        for job in waiting {
            let explained = self.client.explain_job(JobId(job), STALE).await;
            self.collection.add(
                &format!("explain/{job}.json"),
                explained.map(Explanation::from),
            );
        }
    }

    /// The newest events, one per line.
    async fn events(&mut self, revision: u64, hosts: &[v1::Host]) {
        let names: HostNames = hosts
            .iter()
            .map(|host| (host.id, host.name.clone()))
            .collect();
        let mut lines = String::new();
        let read = self.read_events(revision, &names, &mut lines);
        let ended = timeout(EVENTS_WAIT, read).await;
        let ended =
            ended.unwrap_or_else(|_| Err("the rest did not arrive before the timeout".to_owned()));
        self.collection.add_text("events.jsonl", &lines);
        if let Err(why) = ended {
            self.collection.miss("events.jsonl (all of it)", &why);
        }
    }

    async fn read_events(
        &self,
        revision: u64,
        names: &HostNames,
        lines: &mut String,
    ) -> Result<(), String> {
        let mut from = Revision(revision.saturating_sub(REVISIONS_MAX));
        let mut watch = self.client.watch(Some(from), WatchFilter::default());
        while from.get() < revision {
            match watch.next().await {
                Ok(WatchUpdate::Events {
                    revision,
                    time,
                    events,
                }) => {
                    from = revision;
                    for event in events {
                        let event = Event::new(revision.get(), time.0, event, names);
                        let line = event.as_ref().map(to_json_line).transpose();
                        let line = line.map_err(|failure| failure.text())?;
                        lines.push_str(&line.unwrap_or_default());
                    }
                }
                Ok(WatchUpdate::Bookmark { revision }) => from = revision,
                Ok(WatchUpdate::Resumed { .. }) => {}
                Err(ClientError::Compacted { compacted, .. }) => {
                    watch = self.client.watch(Some(compacted), WatchFilter::default());
                    from = compacted;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    async fn replica(&mut self, replica: &v1::Replica) {
        let answer = async {
            let client = client_of(&self.client, replica).await?;
            client
                .debug_info(&self.author, Process::ReplicaId(replica.id))
                .await
        };
        let answer = answer.await.map_err(text);
        self.process(&format!("replicas/{}", replica.id), answer);
    }

    /// Adds the debug information of a process.
    fn process(&mut self, folder: &str, answer: Result<v1::GetDebugInfoResponse, String>) {
        let info = match answer {
            Ok(info) => info,
            Err(why) => return self.collection.miss(folder, &why),
        };
        let about = json!({"version": info.version, "log_filter": info.log_filter});
        let about = Ok::<_, ClientError>(about);
        self.collection.add(&format!("{folder}/about.json"), about);
        let settings: Result<Value, _> = serde_json::from_str(&info.settings);
        self.collection
            .add(&format!("{folder}/settings.json"), settings);
        let lines = info.log_lines.join("\n") + "\n";
        self.collection
            .add_text(&format!("{folder}/log.jsonl"), &lines);
        match info.metrics.is_empty() {
            true => {
                let why = "its settings have no `metrics_listen`";
                self.collection.miss(&format!("{folder}/metrics.txt"), why);
            }
            false => self
                .collection
                .add_text(&format!("{folder}/metrics.txt"), &info.metrics),
        }
    }

    fn list<T: Serialize>(&mut self, name: &str, rows: Vec<T>, failed: Option<ClientError>) {
        match failed {
            Some(error) => self.collection.miss(name, &error.to_string()),
            None => self.collection.add(name, Ok::<_, ClientError>(rows)),
        }
    }
}

/// The rows of a list, or the error.
fn split<T>(read: Result<(Revision, Vec<T>), ClientError>) -> (Vec<T>, Option<ClientError>) {
    match read {
        Ok((_, rows)) => (rows, None),
        Err(error) => (Vec::new(), Some(error)),
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "maps errors, which are passed by value"
)]
fn text(error: ClientError) -> String {
    error.to_string()
}

fn silent() -> String {
    format!("no answer within {} s", ANSWER_MAX.as_secs())
}

/// The workers to ask: the named ones, else a selection with unhealthy hosts first.
fn chosen(named: &[String], hosts: &[v1::Host], collection: &mut Collection) -> Vec<String> {
    if !named.is_empty() {
        return named.to_vec();
    }
    let mut hosts: Vec<&v1::Host> = hosts.iter().collect();
    hosts.sort_by_key(|host| host.health() == v1::HostHealth::Up);
    let left = hosts.len().saturating_sub(WORKERS_MAX);
    if left > 0 {
        let why = format!(
            "only {WORKERS_MAX} workers are asked (WORKERS_MAX): select them with --worker"
        );
        collection.miss(&format!("{left} more workers"), &why);
    }
    let chosen = hosts.into_iter().take(WORKERS_MAX);
    chosen.map(|host| host.name.clone()).collect()
}
