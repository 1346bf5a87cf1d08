//! `muster chaos run --target`: a run on an external cluster with other users.
//!
//! Only faults that its owner names are injected. Jobs of the run carry its [`Tag`] and have the lowest
//! priority; before each fault the cluster is asked for the affected workloads, and a fault that would hit
//! other users' jobs is not injected. Blocks have an expiry, so that they are lifted even if the run dies.
//! In the end, also after an interruption, everything is cleaned up.
//!
//! The log and the disks of the replicas cannot be read: the users' history and the watchers' events are
//! checked against each other. The report names the invariants that cannot be checked so.

mod blocked;
mod checkers;
mod cleanup;
mod command;
mod faults;
mod hosts;
mod ledger;
mod nemesis;
mod replicas;
mod tag;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, fs};

use checkers::RunContext;
use ledger::LedgerFolder;
use muster_client::{Client, ClientConfig};
use muster_model::ids::{HostId, Revision};
use muster_proto::v1;
use nemesis::ExternalNemesis;
use replicas::Replica;
use serde::Serialize;
use tokio::time::{Duration, Instant, sleep};

use crate::cluster::timeline::{LineKind, Output, Timeline};
use crate::cluster::{Fault, NamedAgent, NamedProcess, UnfitProcess};
use crate::run::checkers::Evidence;
use crate::run::clock::{RunSpan, now_us};
use crate::run::history::History;
use crate::run::load::{GANG_TASKS_MAX, LoadSpec, TaskProgram, Users, Watchers};
use crate::run::nemesis::Episode;
use crate::run::options::{DRAIN_TIMEOUT, NEMESIS, POLL};
use crate::run::report::{self, RunParameters};
use crate::run::{RunError, RunReport};

pub(in crate::run) use tag::Tag;

/// Faults that the owner of an external cluster can allow, in the order of injection: through the API, or on
/// processes named by pid.
pub const EXTERNAL_FAULTS: [Fault; 9] = [
    Fault::GpuBlocked,
    Fault::HostBlocked,
    Fault::HostDrained,
    Fault::JobsCancelled,
    Fault::LeadershipTransferred,
    Fault::AgentFrozen,
    Fault::AgentKilled,
    Fault::ReplicaFrozen,
    Fault::ReplicaKilled,
];
/// Duration of the load per repetition if no fault is allowed.
const LOAD_ONLY: Duration = Duration::from_secs(10);
/// GPUs per task of multi-GPU jobs; a host with fewer cannot run them.
const SEVERAL_GPUS: u32 = 2;

/// Settings of a run on an external cluster.
#[derive(Clone, Debug)]
pub struct TargetOptions {
    /// Connection settings. Further replicas are reported from the first that answers.
    pub cluster: ClientConfig,
    /// Context of the command line, if given, for the command that repeats the run.
    pub context: Option<String>,
    /// Allowed faults; each is injected once per round.
    pub allowed: BTreeSet<Fault>,
    /// Agents on this machine that may be frozen or killed, if allowed.
    pub agents: Vec<NamedAgent>,
    /// Process ids of replicas on this machine that may be frozen or killed, if allowed.
    pub replicas: Vec<i32>,
    /// User name for submits, blocks and cancels in a cluster without authentication.
    pub user: String,
    /// Queue of the jobs; the cluster's default if `None`.
    pub queue: Option<String>,
    /// Path of the example trainer, the same on every host, and a folder shared by all hosts and this
    /// machine: tasks lock their GPUs in a subfolder of the run. Without it tasks sleep, and only the
    /// cluster itself reports their GPUs.
    pub gpu_ledger: Option<(PathBuf, PathBuf)>,
    /// Repetitions of each fault.
    pub repetitions: u32,
    /// Seed of the users' calls and the fault targets.
    pub seed: u64,
    /// Folder for the report and the histories.
    pub out: PathBuf,
}

/// Target and permissions of a run, and the effects on its other users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TargetInfo {
    /// The cluster's name.
    pub cluster: String,
    /// Name of the run, carried by its jobs and blocks.
    pub run: String,
    /// Allowed faults.
    pub allowed: Vec<Fault>,
    /// Active jobs of others when the run began.
    pub foreign_jobs: usize,
    /// Units of others displaced during the run, for whatever reason.
    pub foreign_displaced: usize,
    /// Invariants that cannot be checked from outside.
    pub not_judged: Vec<&'static str>,
}

impl fmt::Display for TargetInfo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allowed = if self.allowed.is_empty() {
            "nothing but submitting".to_owned()
        } else {
            let names: Vec<&str> = self.allowed.iter().map(|it| it.name()).collect();
            names.join(", ")
        };
        writeln!(
            formatter,
            "Run {} on cluster {}; allowed: {allowed}. {} jobs of others were active, {} of their units were displaced \
             during the run. Not checked from outside: {}.",
            self.run,
            self.cluster,
            self.foreign_jobs,
            self.foreign_displaced,
            self.not_judged.join("; ")
        )
    }
}

/// Runs until done or until `stop` completes, cleans up everything that the run created, and writes the
/// report. Progress goes to standard error.
///
/// # Errors
/// If the run is stopped, a named process or an allowed fault cannot be used, or clean-up fails. A cluster
/// that violates an invariant is no error, but a verdict: also one that does not end cancelled jobs.
pub async fn run_target(
    options: &TargetOptions,
    stop: impl Future<Output = ()>,
) -> Result<RunReport, RunError> {
    let timeline = Timeline::begin(Output::Stderr);
    let making = RunError::io(format!(
        "creating the folder of the report, {}",
        options.out.display()
    ));
    fs::create_dir_all(&options.out).map_err(making)?;
    let processes = Arc::new(named_processes(options)?);
    let client = connect(options.cluster.clone()).await?;
    client.discover().await?;
    let mut tag = Tag::new(&options.user, options.queue.as_deref());
    let line = format!("run {}: its jobs and blocks carry this name", tag.run);
    timeline.print_line(LineKind::Stage, &line);
    let worked = tokio::select! {
        worked = work(options, &client, &mut tag, &processes, timeline) => Some(worked),
        () = stop => None,
    };
    timeline.print_line(LineKind::Stage, "cleaning up after the run");
    let cleared = cleanup::clean_up(&client, &tag, &processes).await;
    let Some(worked) = worked else {
        cleanup::check_ended(&tag, &cleared?)?;
        let text = "interrupted; everything that the run created is cleaned up";
        return Err(RunError::Harness(text.to_owned()));
    };
    match worked {
        Ok(worked) => conclude(options, &tag, worked, &cleared?),
        Err(stopped) => {
            let ended = cleared.and_then(|own| cleanup::check_ended(&tag, &own));
            let errors = [Err(stopped), ended].into_iter().filter_map(Result::err);
            Err(cleanup::together(errors.collect()))
        }
    }
}

/// Opens the named processes.
fn named_processes(options: &TargetOptions) -> Result<Vec<NamedProcess>, RunError> {
    let agents = options.agents.iter().map(NamedProcess::agent);
    let replicas = options
        .replicas
        .iter()
        .map(|pid| NamedProcess::replica(*pid));
    let held: Result<Vec<NamedProcess>, UnfitProcess> = agents.chain(replicas).collect();
    held.map_err(|unfit| RunError::Harness(unfit.to_string()))
}

/// Observations while faults were injected and repaired.
struct Worked {
    evidence: Evidence,
    /// Ids and names of the hosts that it may have blocked.
    taken: BTreeMap<HostId, String>,
    /// GPU ledger of its tasks, if they keep one.
    kept: Option<LedgerFolder>,
    grounds: TargetInfo,
    span: RunSpan,
}

async fn work(
    options: &TargetOptions,
    client: &Client,
    tag: &mut Tag,
    processes: &Arc<Vec<NamedProcess>>,
    timeline: Timeline,
) -> Result<Worked, RunError> {
    let status = client.status(v1::Consistency::Linearizable).await?;
    let addresses = status.replicas.iter();
    let cluster = ClientConfig {
        addresses: addresses.map(|replica| replica.address.clone()).collect(),
        ..options.cluster.clone()
    };
    let begin = Revision(status.revision);
    let foreign_jobs = foreign_jobs(client).await?;
    let mut workshop = workshop(options, client, tag).await?;
    let kept = options.gpu_ledger.as_ref().map(|(_, named)| LedgerFolder {
        folder: LedgerFolder::folder(named, tag),
        has_gpus: workshop.gpus[0] > 0,
    });
    let history = Arc::new(History::default());
    let replicas = Replica::all(&cluster).await?;
    let watchers = Watchers::begin(&answering(&cluster, &replicas, timeline), begin).await?;
    tag.user = introduce(client, &workshop, &history).await?;
    workshop.tag = Some(tag.clone());
    let mut outside = ExternalNemesis::new(
        options,
        client.clone(),
        replicas,
        tag.clone(),
        Arc::clone(processes),
        Arc::clone(&history),
        timeline,
    )
    .await?;
    let from_us = now_us();
    let users = Users::begin(&cluster, options.seed, &workshop, &history).await?;
    let episodes = strike_all(options, &mut outside, timeline).await?;
    users.end().await;
    let calls_until_us = now_us();
    timeline.print_line(
        LineKind::Stage,
        "no more calls; waiting for the jobs of the run to end",
    );
    let last = await_ended(client, tag).await;
    let watched = watchers.end(last).await;
    let ledger = kept.as_ref().map(LedgerFolder::read).transpose()?;
    let truth = checkers::union_of_events(&watched);
    let grounds = grounds(options, tag, status.cluster_id, foreign_jobs);
    let evidence = Evidence {
        operations: history.operations(),
        watched,
        calls_until_us,
        last,
        ledger: ledger.unwrap_or_default(),
        log: truth,
        journals: Vec::new(),
        episodes,
    };
    Ok(Worked {
        evidence,
        taken: outside.taken,
        kept,
        grounds,
        span: RunSpan {
            from_us,
            to_us: now_us(),
        },
    })
}

/// The target and the permissions.
fn grounds(options: &TargetOptions, tag: &Tag, cluster: String, foreign_jobs: usize) -> TargetInfo {
    TargetInfo {
        cluster,
        run: tag.run.clone(),
        allowed: options.allowed.iter().copied().collect(),
        foreign_jobs,
        foreign_displaced: 0,
        not_judged: checkers::not_judged(options.gpu_ledger.is_some()),
    }
}

/// Replicas that answer: no watcher listens at one that did not answer at the start.
fn answering(cluster: &ClientConfig, replicas: &[Replica], timeline: Timeline) -> ClientConfig {
    let (there, absent): (Vec<&Replica>, Vec<&Replica>) =
        replicas.iter().partition(|replica| replica.was_there);
    for replica in absent {
        let text = format!(
            "the replica at {} does not answer: it gets no watcher",
            replica.address
        );
        timeline.print_line(LineKind::Stage, &text);
    }
    ClientConfig {
        addresses: there.iter().map(|it| it.address.clone()).collect(),
        ..cluster.clone()
    }
}

/// Injects every allowed fault, round after round; without any, lets users work.
async fn strike_all(
    options: &TargetOptions,
    outside: &mut ExternalNemesis,
    timeline: Timeline,
) -> Result<Vec<Episode>, RunError> {
    let mut episodes = Vec::new();
    for round in 1..=options.repetitions {
        let (of, count) = (options.repetitions, options.allowed.len());
        timeline.print_line(
            LineKind::Stage,
            &format!("round {round} of {of} with {count} faults"),
        );
        if options.allowed.is_empty() {
            sleep(LOAD_ONLY).await;
        }
        for fault in EXTERNAL_FAULTS
            .into_iter()
            .filter(|it| options.allowed.contains(it))
        {
            let episode = outside.strike(fault).await?;
            let is_whole = episode.recovered_us.is_some();
            episodes.push(episode);
            if !is_whole {
                // Further faults would show nothing else.
                return Ok(episodes);
            }
        }
    }
    Ok(episodes)
}

/// Waits until every job of the run has ended, or time is up: jobs that still wait for resources are not
/// the cluster's failure. Returns the newest revision seen.
async fn await_ended(client: &Client, tag: &Tag) -> Revision {
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    let mut newest = Revision(0);
    while Instant::now() < deadline {
        // A cluster that does not answer cannot confirm that its jobs have ended.
        if let Ok((revision, jobs)) = cleanup::own_jobs(client, tag).await {
            newest = newest.max(revision);
            if jobs.iter().all(cleanup::has_ended) {
                break;
            }
        }
        sleep(POLL).await;
    }
    newest
}

/// Counts active jobs before the run has any.
async fn foreign_jobs(client: &Client) -> Result<usize, RunError> {
    let status = client.status(v1::Consistency::Linearizable).await?;
    let jobs = status.jobs.unwrap_or_default();
    let live = jobs.queued + jobs.running + jobs.cancelling;
    Ok(usize::try_from(live).unwrap_or(usize::MAX))
}

/// Jobs to submit: gangs that fit into half of the free resources, so that they wait for no other job.
/// Checks with the cluster that it accepts them.
async fn workshop(
    options: &TargetOptions,
    client: &Client,
    tag: &Tag,
) -> Result<LoadSpec, RunError> {
    let (_, hosts) = client.list_hosts(v1::ListHostsRequest::default()).await?;
    let count = |gpus: usize| u32::try_from(gpus).unwrap_or(u32::MAX);
    let gpus = { hosts.iter() }.map(|host| count(host.gpus.len())).max();
    let gpus = gpus.unwrap_or(0);
    let all = hosts.iter().filter(|host| host.block.is_none());
    let all = all.flat_map(|host| &host.gpus);
    let free = all.filter(|gpu| gpu.holder.is_none() && gpu.block.is_none());
    let gang_tasks_max = match gpus {
        // Without GPUs in the cluster, tasks request none.
        0 => GANG_TASKS_MAX,
        _ => (count(free.count()) / 2).clamp(1, GANG_TASKS_MAX),
    };
    let tool = match &options.gpu_ledger {
        Some((trainer, named)) => TaskProgram::Trainer {
            trainer: trainer.clone(),
            ledger: LedgerFolder::folder(named, tag),
        },
        None => TaskProgram::Sleep,
    };
    let workshop = LoadSpec {
        tool,
        gpus: [gpus.min(1), gpus.min(SEVERAL_GPUS)],
        gang_tasks_max,
        tag: Some(tag.clone()),
        cancels: options.allowed.contains(&Fault::JobsCancelled),
    };
    client.validate_job(workshop.sample().1).await?;
    Ok(workshop)
}

/// Submits the first job of the run, and returns the user name that the cluster stores for it: an
/// authenticated name overrides the requested one.
async fn introduce(
    client: &Client,
    workshop: &LoadSpec,
    history: &History,
) -> Result<String, RunError> {
    let (request, spec) = workshop.sample();
    let answer = history.submit(NEMESIS, client, request, spec).await?;
    let read = client.get_job(answer.job, 1, v1::Consistency::Linearizable);
    let spec = read.await?.job.spec;
    Ok(spec.map(|spec| spec.user).unwrap_or_default())
}

/// Checks and writes the report.
fn conclude(
    options: &TargetOptions,
    tag: &Tag,
    worked: Worked,
    own: &[v1::Job],
) -> Result<RunReport, RunError> {
    let Worked {
        evidence,
        taken,
        kept,
        mut grounds,
        span,
    } = worked;
    grounds.foreign_displaced = checkers::foreign_displaced(&evidence, own);
    let judged = checkers::judge(
        &evidence,
        &RunContext {
            tag,
            allowed: &options.allowed,
            own,
            taken: &taken,
            kept: kept.as_ref(),
        },
    );
    let asked = RunParameters {
        profile: "target",
        seed: options.seed,
        repetitions: options.repetitions,
        again: command::command(options),
    };
    let faults = report::measurements::of_faults(&evidence, span.to_us);
    let mut report = RunReport::drawn_up(asked, judged, faults, span);
    report.grounds = Some(grounds);
    report::write(&options.out, &report, &evidence, span)?;
    Ok(report)
}

async fn connect(cluster: ClientConfig) -> Result<Client, RunError> {
    let config = ClientConfig {
        discover: false,
        unreachable_deadline: Duration::ZERO,
        ..cluster
    };
    Ok(Client::connect(config).await?)
}
