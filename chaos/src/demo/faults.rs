//! Faults of the demo in sequence, each with its expected consequences.

use std::time::Duration;

use muster_model::command::HostHealth;
use muster_model::event::{Event, EventKind};
use muster_model::health::Component;
use muster_model::ids::HostId;
use muster_proto::v1;
use tokio::time::Instant;

use crate::demo::DemoError;
use crate::demo::observer::lock;
use crate::demo::options::{PATIENCE, RANKS};
use crate::demo::scoreboard::FaultRecord;
use crate::demo::stage::Stage;
use crate::demo::timeline::Voice;

/// Pause between two faults, so that the training makes progress.
const CALM: Duration = Duration::from_secs(4);
/// Duration of the block of a host.
const BLOCKED: Duration = Duration::from_secs(2);

/// Injects all faults.
pub(super) async fn play_all(stage: &mut Stage) -> Result<(), DemoError> {
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
    let from = stage.observed.here();
    tokio::time::sleep(CALM).await;
    let job = stage.training;
    let committed = move |event: &Event| {
        matches!(&event.kind,
            EventKind::CheckpointCommitted { job: of, .. } if *of == job)
    };
    stage
        .observed
        .wait_for("a checkpoint", from, PATIENCE, committed)
        .await?;
    Ok(())
}

fn record(
    stage: &Stage,
    name: &str,
    (began, detected): (Instant, Instant),
    resumed: Option<Instant>,
) {
    let lost = resumed.map_or(0.0, |resumed| lost_gpu_seconds(stage, began, resumed));
    let fault = FaultRecord {
        name: name.to_owned(),
        detected: detected.duration_since(began),
        resumed: resumed.map(|at| at.duration_since(began)),
        lost_gpu_seconds: lost,
    };
    lock(&stage.observed.board).faults.push(fault);
}

/// GPU-seconds of training between the checkpoint from which it `resumed` and the `fault`, over all ranks;
/// 0 if the ranks could still write a checkpoint after the fault.
fn lost_gpu_seconds(stage: &Stage, fault: Instant, resumed: Instant) -> f64 {
    let job = stage.training;
    let checkpoint = stage.observed.newest_before(
        resumed,
        |event| matches!(&event.kind, EventKind::CheckpointCommitted { job: of, .. } if *of == job),
    );
    let since = checkpoint.map_or(Duration::ZERO, |seen| {
        fault.saturating_duration_since(seen.at)
    });
    since.as_secs_f64() * f64::from(RANKS)
}

/// Waits until the training runs again with all ranks.
async fn training_resumed(stage: &Stage, from: usize) -> Result<Instant, DemoError> {
    let job = stage.training;
    let running = move |event: &Event| matches!(&event.kind, EventKind::AttemptRunning { job: of, .. } if *of == job);
    Ok(stage
        .observed
        .wait_for("resumption of the training", from, PATIENCE, running)
        .await?
        .at)
}

/// Number of the training's current attempt, and host and GPU of each rank.
async fn whereabouts(stage: &Stage) -> Result<(u32, Vec<(String, String)>), DemoError> {
    let detail = stage
        .client
        .get_job(stage.training, 1, v1::Consistency::Linearizable)
        .await?;
    let attempt = detail
        .units
        .into_iter()
        .next()
        .and_then(|unit| unit.attempt);
    let attempt =
        attempt.ok_or_else(|| DemoError::Broken("the training is not running".to_owned()))?;
    let ranks = attempt.tasks.into_iter().map(|task| {
        let gpu = task.gpus.into_iter().next().unwrap_or_default();
        (task.host, gpu)
    });
    Ok((attempt.number, ranks.collect()))
}

fn worker_index(stage: &Stage, name: &str) -> Result<usize, DemoError> {
    let position = stage
        .cluster
        .workers()
        .iter()
        .position(|worker| worker.name == name);
    position.ok_or_else(|| DemoError::Broken(format!("host {name} is not in this cluster")))
}

async fn kill_leader(stage: &mut Stage) -> Result<(), DemoError> {
    let status = stage.client.status(v1::Consistency::Linearizable).await?;
    let leader = status.leader_id.unwrap_or_default();
    let index = usize::try_from(leader)
        .unwrap_or_default()
        .saturating_sub(1);
    let (attempt_before, _) = whereabouts(stage).await?;
    stage.say(
        Voice::Fault,
        &format!("kill -9 of replica {leader}, the leader, during training"),
    );
    let began = Instant::now();
    stage.cluster.kill_replica(index)?;
    let probe = super::jobs::probe(&stage.options.trainer);
    let job = stage.client.submit_job(probe).await?.job;
    let written = Instant::now();
    stage.acknowledge(job);
    stage.say(
        Voice::Recovery,
        &format!(
            "first write acknowledged after {:.2} s",
            (written - began).as_secs_f64()
        ),
    );
    stage.cluster.start_replica(index)?;
    let (attempt_after, _) = whereabouts(stage).await?;
    if attempt_after != attempt_before {
        return Err(DemoError::Broken(
            "the training was restarted by the leader's death".to_owned(),
        ));
    }
    record(stage, "leader killed", (began, written), None);
    Ok(())
}

async fn kill_agent(stage: &mut Stage) -> Result<(), DemoError> {
    let (attempt_before, ranks) = whereabouts(stage).await?;
    let host = ranks[0].0.clone();
    let index = worker_index(stage, &host)?;
    stage.say(
        Voice::Fault,
        &format!("kill -9 of the agent of {host}; its tasks continue"),
    );
    let from = stage.observed.here();
    let began = Instant::now();
    stage.cluster.kill_agent(index)?;
    let suspect = host_health(stage, from, &host, HostHealth::Suspect).await?;
    stage.cluster.start_worker(index)?;
    let from = stage.observed.here();
    host_health(stage, from, &host, HostHealth::Up).await?;
    let (attempt_after, _) = whereabouts(stage).await?;
    if attempt_after != attempt_before {
        return Err(DemoError::Broken(
            "the training was restarted by the agent's death".to_owned(),
        ));
    }
    stage.say(
        Voice::Recovery,
        &format!("{host} has adopted its running tasks"),
    );
    record(stage, "agent killed", (began, suspect), None);
    Ok(())
}

async fn kill_host(stage: &mut Stage) -> Result<(), DemoError> {
    let (_, ranks) = whereabouts(stage).await?;
    let host = ranks[0].0.clone();
    let index = worker_index(stage, &host)?;
    let from = stage.observed.here();
    let began = Instant::now();
    let processes = stage.cluster.kill_host(index)?;
    stage.say(
        Voice::Fault,
        &format!("{host} is gone: agent, supervisors and tasks, {processes} processes"),
    );
    let lost = host_health(stage, from, &host, HostHealth::Lost).await?;
    let resumed = training_resumed(stage, from).await?;
    stage.cluster.start_worker(index)?;
    record(stage, "host killed", (began, lost), Some(resumed));
    Ok(())
}

async fn lose_gpu(stage: &mut Stage) -> Result<(), DemoError> {
    let (_, ranks) = whereabouts(stage).await?;
    let real_host = stage.cluster.real_gpu_host();
    let on_simulated = ranks.into_iter().rfind(|(host, _)| real_host != Some(host));
    let (host, gpu) = on_simulated.ok_or_else(|| {
        DemoError::Broken("every rank has a real GPU, which cannot be made to fail".to_owned())
    })?;
    stage.say(Voice::Fault, &format!("{gpu} of {host} falls off the bus"));
    let from = stage.observed.here();
    let began = Instant::now();
    let fault = v1::GpuFault {
        signal: "xid-79".to_owned(),
        detail: "GPU has fallen off the bus (demo)".to_owned(),
    };
    stage
        .client
        .inject_gpu_fault(&host, &gpu, Some(fault))
        .await?;
    // An XID 79 takes the whole host out of placement: its other components cannot be trusted.
    let noticed = move |event: &Event| match &event.kind {
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
    let seen = stage
        .observed
        .wait_for("the GPU's fault", from, PATIENCE, noticed)
        .await?;
    let resumed = training_resumed(stage, from).await?;
    record(stage, "GPU off the bus", (began, seen.at), Some(resumed));
    Ok(())
}

async fn block_host(stage: &mut Stage) -> Result<(), DemoError> {
    let (_, ranks) = whereabouts(stage).await?;
    let host = ranks[0].0.clone();
    let host_id = host_id(stage, &host).await?;
    stage.say(Voice::Fault, &format!("an admin blocks {host}"));
    let from = stage.observed.here();
    let began = Instant::now();
    let target = v1::BlockTarget {
        target: Some(v1::block_target::Target::Host(host.clone())),
    };
    stage
        .client
        .block(v1::BlockRequest {
            target: Some(target.clone()),
            reason: "demo: a cable is being moved".to_owned(),
            author: "demo".to_owned(),
            ..v1::BlockRequest::default()
        })
        .await?;
    let blocked = stage
        .observed
        .wait_for("the block", from, PATIENCE, |event| {
            matches!(event.kind, EventKind::Blocked { .. })
        })
        .await?;
    let blocked_from = stage.observed.here();
    tokio::time::sleep(BLOCKED).await;
    if stage
        .observed
        .any_since(blocked_from, |event| places_on(event, host_id))
    {
        let broken = format!("something was placed on {host} while it was blocked");
        return Err(DemoError::Broken(broken));
    }
    stage.client.unblock(target, "demo").await?;
    stage
        .observed
        .wait_for(
            "a placement on the unblocked host",
            blocked_from,
            PATIENCE,
            |event| places_on(event, host_id),
        )
        .await?;
    record(
        stage,
        "host blocked, then unblocked",
        (began, blocked.at),
        None,
    );
    Ok(())
}

/// Whether an event places an attempt on this host.
fn places_on(event: &Event, host: HostId) -> bool {
    matches!(&event.kind, EventKind::AttemptPlaced { hosts, .. } if hosts.contains(&host))
}

async fn host_id(stage: &Stage, name: &str) -> Result<HostId, DemoError> {
    let request = v1::ListHostsRequest::default();
    let (_, hosts) = stage.client.list_hosts(request).await?;
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
    let name = host.to_owned();
    let changed = move |event: &Event| {
        matches!(&event.kind, EventKind::HostHealthChanged { name: of, health, .. }
            if *of == name && *health == expected)
    };
    Ok(stage
        .observed
        .wait_for(&what, from, PATIENCE, changed)
        .await?
        .at)
}
