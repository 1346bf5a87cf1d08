//! Faults of the demo in sequence, each with its expected consequences.

use std::time::Duration;

use muster_model::command::HostHealth;
use muster_model::event::{Event, EventKind};
use muster_model::health::Component;
use muster_model::ids::HostId;
use muster_proto::v1;
use tokio::time::{Instant, sleep};

use crate::cluster::timeline::LineKind;
use crate::cluster::{Disruption, Fault, OFF_THE_BUS_XID, Part, set_gpu_error};
use crate::demo::options::RANKS;
use crate::demo::scoreboard::FaultRecord;
use crate::demo::stage::Stage;
use crate::demo::{DemoError, jobs};

/// Pause between two faults, so that the training makes progress.
const CALM: Duration = Duration::from_secs(4);
/// Duration of the block of a host.
const BLOCKED: Duration = Duration::from_secs(2);

/// Injects all faults.
pub(super) async fn inject_all(stage: &mut Stage) -> Result<(), DemoError> {
    kill_leader(stage).await?;
    calm(stage).await?;
    kill_agent(stage).await?;
    calm(stage).await?;
    kill_host(stage).await?;
    calm(stage).await?;
    lose_gpu(stage).await?;
    calm(stage).await?;
    block_host(stage).await
}

/// Waits a little, and until the training has a checkpoint of its current attempt.
async fn calm(stage: &Stage) -> Result<(), DemoError> {
    let from = stage.testbed.events.position();
    sleep(CALM).await;
    let committed = stage
        .testbed
        .wait_for_job("a checkpoint", from, stage.training, is_checkpoint);
    committed.await?;
    Ok(())
}

const fn is_checkpoint(kind: &EventKind) -> bool {
    matches!(kind, EventKind::CheckpointCommitted { .. })
}

/// Adds a fault to the table, with the time at which it was detected and the one at which the training ran
/// again, if it was interrupted.
fn record(
    stage: &Stage,
    fault: Fault,
    began: Instant,
    detected: Instant,
    resumed: Option<Instant>,
) {
    let lost = resumed.map_or(0.0, |resumed| lost_gpu_seconds(stage, began, resumed));
    stage.record(FaultRecord {
        fault,
        detected: detected.duration_since(began),
        resumed: resumed.map(|at| at.duration_since(began)),
        lost_gpu_seconds: lost,
    });
}

/// GPU-seconds of training between the checkpoint from which it `resumed` and the `fault`, over all ranks;
/// 0 if the ranks could still write a checkpoint after the fault.
fn lost_gpu_seconds(stage: &Stage, fault: Instant, resumed: Instant) -> f64 {
    let job = stage.training;
    let events = &stage.testbed.events;
    let checkpoint = events.newest_before(resumed, |event| {
        event.kind.job() == Some(job) && is_checkpoint(&event.kind)
    });
    let since = checkpoint.map_or(Duration::ZERO, |seen| {
        fault.saturating_duration_since(seen.at)
    });
    since.as_secs_f64() * f64::from(RANKS)
}

/// Waits until the training runs again with all ranks.
async fn training_resumed(stage: &Stage, from: usize) -> Result<Instant, DemoError> {
    let is_running = |kind: &EventKind| matches!(kind, EventKind::AttemptRunning { .. });
    let what = "resumption of the training";
    let resumed = stage
        .testbed
        .wait_for_job(what, from, stage.training, is_running);
    Ok(resumed.await?.at)
}

/// Number of the training's current attempt, and host and GPU of each rank.
async fn whereabouts(stage: &Stage) -> Result<(u32, Vec<(String, String)>), DemoError> {
    let client = &stage.testbed.client;
    let detail = client
        .get_job(stage.training, 1, v1::Consistency::Linearizable)
        .await?;
    let unit = detail.units.into_iter().next();
    let attempt = unit.and_then(|unit| unit.attempt);
    let attempt =
        attempt.ok_or_else(|| DemoError::Broken("the training is not running".to_owned()))?;
    let ranks = attempt.tasks.into_iter().map(|task| {
        let gpu = task.gpus.into_iter().next().unwrap_or_default();
        (task.host, gpu)
    });
    Ok((attempt.number, ranks.collect()))
}

/// Host of the training's first rank, and its position among the workers.
async fn first_host(stage: &Stage) -> Result<(usize, String), DemoError> {
    let (_, mut ranks) = whereabouts(stage).await?;
    let (host, _) = ranks.swap_remove(0);
    let Some(worker) = stage.testbed.cluster.worker_named(&host) else {
        let text = format!("host {host} is not in this cluster");
        return Err(DemoError::Broken(text));
    };
    Ok((worker, host))
}

/// Fails if the training is in another attempt than before.
async fn require_attempt(stage: &Stage, before: u32, death_of: &str) -> Result<(), DemoError> {
    let (after, _) = whereabouts(stage).await?;
    if after == before {
        return Ok(());
    }
    let text = format!("the training was restarted by the death of the {death_of}");
    Err(DemoError::Broken(text))
}

async fn kill_leader(stage: &mut Stage) -> Result<(), DemoError> {
    let status = stage.testbed.client.status(v1::Consistency::Linearizable);
    let leader = stage.testbed.cluster.leader_in(&status.await?);
    let leader = leader.ok_or_else(|| DemoError::Broken("there is no leader".to_owned()))?;
    let (attempt, _) = whereabouts(stage).await?;
    let killed = Disruption::Killed(Part::Replica(leader));
    let began = Instant::now();
    stage.testbed.inject(&killed)?;
    let probe = jobs::probe(&stage.options.trainer);
    let job = stage.testbed.client.submit_job(probe).await?.job;
    let written = Instant::now();
    stage.acknowledge(job);
    let after_s = (written - began).as_secs_f64();
    let text = format!("first write acknowledged after {after_s:.2} s");
    stage.print_line(LineKind::Recovery, &text);
    stage.testbed.repair(&killed)?;
    require_attempt(stage, attempt, "leader").await?;
    record(stage, Fault::LeaderKilled, began, written, None);
    Ok(())
}

async fn kill_agent(stage: &mut Stage) -> Result<(), DemoError> {
    let (attempt, _) = whereabouts(stage).await?;
    let (worker, host) = first_host(stage).await?;
    let killed = Disruption::Killed(Part::Agent(worker));
    let from = stage.testbed.events.position();
    let began = Instant::now();
    stage.testbed.inject(&killed)?;
    let suspect = host_health(stage, from, &host, HostHealth::Suspect).await?;
    stage.testbed.repair(&killed)?;
    let from = stage.testbed.events.position();
    host_health(stage, from, &host, HostHealth::Up).await?;
    require_attempt(stage, attempt, "agent").await?;
    let text = format!("{host} has adopted its running tasks");
    stage.print_line(LineKind::Recovery, &text);
    record(stage, Fault::AgentKilled, began, suspect, None);
    Ok(())
}

async fn kill_host(stage: &mut Stage) -> Result<(), DemoError> {
    let (worker, host) = first_host(stage).await?;
    let killed = Disruption::Killed(Part::Host(worker));
    let from = stage.testbed.events.position();
    let began = Instant::now();
    stage.testbed.inject(&killed)?;
    let lost = host_health(stage, from, &host, HostHealth::Lost).await?;
    let resumed = training_resumed(stage, from).await?;
    stage.testbed.repair(&killed)?;
    record(stage, Fault::HostKilled, began, lost, Some(resumed));
    Ok(())
}

async fn lose_gpu(stage: &mut Stage) -> Result<(), DemoError> {
    let (_, ranks) = whereabouts(stage).await?;
    let real_host = stage.testbed.cluster.real_gpu_host();
    let on_simulated = ranks.into_iter().rfind(|(host, _)| real_host != Some(host));
    let (host, gpu) = on_simulated.ok_or_else(|| {
        DemoError::Broken("every rank has a real GPU, which cannot be made to fail".to_owned())
    })?;
    let text = format!("{gpu} of {host} falls off the bus");
    stage.print_line(LineKind::Fault, &text);
    let from = stage.testbed.events.position();
    let began = Instant::now();
    let client = &stage.testbed.client;
    set_gpu_error(client, &host, &gpu, Some(OFF_THE_BUS_XID)).await?;
    // It takes the whole host out of placement: its other components cannot be trusted.
    let is_noticed = move |event: &Event| match &event.kind {
        EventKind::HealthChanged {
            component,
            host_name,
            to,
            ..
        } => {
            let is_meant = match component {
                Component::Gpu(of) => of.to_string() == gpu,
                _ => *host_name == host,
            };
            is_meant && !to.accepts_work()
        }
        _ => false,
    };
    let noticed = stage.testbed.wait_for("the GPU's fault", from, is_noticed);
    let noticed = noticed.await?.at;
    let resumed = training_resumed(stage, from).await?;
    record(stage, Fault::GpuLost, began, noticed, Some(resumed));
    Ok(())
}

async fn block_host(stage: &mut Stage) -> Result<(), DemoError> {
    let (_, host) = first_host(stage).await?;
    let host_id = host_id(stage, &host).await?;
    stage.print_line(LineKind::Fault, &format!("an admin blocks {host}"));
    let testbed = &stage.testbed;
    let from = testbed.events.position();
    let began = Instant::now();
    let target = v1::BlockTarget {
        target: Some(v1::block_target::Target::Host(host.clone())),
    };
    let request = v1::BlockRequest {
        target: Some(target.clone()),
        reason: "demo: a cable is being moved".to_owned(),
        author: "demo".to_owned(),
        ..v1::BlockRequest::default()
    };
    testbed.client.block(request).await?;
    let is_block = |event: &Event| matches!(event.kind, EventKind::Blocked { .. });
    let blocked = testbed.wait_for("the block", from, is_block).await?;
    let blocked_from = testbed.events.position();
    sleep(BLOCKED).await;
    let is_placement = |event: &Event| places_on(event, host_id);
    if testbed.events.any_since(blocked_from, is_placement) {
        let broken = format!("something was placed on {host} while it was blocked");
        return Err(DemoError::Broken(broken));
    }
    testbed.client.unblock(target, "demo").await?;
    let what = "a placement on the unblocked host";
    testbed.wait_for(what, blocked_from, is_placement).await?;
    record(stage, Fault::HostBlocked, began, blocked.at, None);
    Ok(())
}

/// Whether an event places an attempt on this host.
fn places_on(event: &Event, host: HostId) -> bool {
    matches!(&event.kind, EventKind::AttemptPlaced { hosts, .. } if hosts.contains(&host))
}

async fn host_id(stage: &Stage, name: &str) -> Result<HostId, DemoError> {
    let request = v1::ListHostsRequest::default();
    let (_, hosts) = stage.testbed.client.list_hosts(request).await?;
    let known = hosts.into_iter().find(|host| host.name == name);
    known
        .map(|host| HostId(host.id))
        .ok_or_else(|| DemoError::Broken(format!("host {name} is not in this cluster")))
}

async fn host_health(
    stage: &Stage,
    from: usize,
    host: &str,
    expected: HostHealth,
) -> Result<Instant, DemoError> {
    let what = format!("{host} {expected:?}");
    let is_changed = |event: &Event| {
        matches!(&event.kind, EventKind::HostHealthChanged { name, health, .. }
            if name == host && *health == expected)
    };
    Ok(stage.testbed.wait_for(&what, from, is_changed).await?.at)
}
