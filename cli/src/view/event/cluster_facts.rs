//! Events about replicas, hosts, GPUs, blocks and queues.

use muster_proto::v1;
use muster_proto::v1::event::Kind;
use serde_json::json;

use crate::output::{Tone, instant};
use crate::view::event::Facts;
use crate::view::word;

/// Text of an event about the cluster; `None` if it is about a job.
pub(super) fn of(kind: &Kind) -> Option<Facts> {
    machines(kind)
        .or_else(|| health(kind))
        .or_else(|| decisions(kind))
}

pub(super) fn facts(
    kind: &'static str,
    tone: Tone,
    text: String,
    detail: serde_json::Value,
) -> Facts {
    Facts {
        kind,
        job: None,
        text,
        detail,
        tone,
    }
}

fn machines(kind: &Kind) -> Option<Facts> {
    Some(match kind {
        Kind::LeaderBegan(event) => {
            let (replica, epoch) = (event.replica_id, event.leadership_epoch);
            let text = format!("replica {replica} leads (epoch {epoch})");
            let detail = json!({"replica": replica, "leadership_epoch": epoch});
            facts("leader_began", Tone::Waiting, text, detail)
        }
        Kind::ReplicaChanged(event) => replica_changed(event),
        Kind::HostRegistered(event) => {
            let text = format!("{} with {} GPUs", event.name, event.gpus);
            let detail = json!({"host_id": event.host_id, "name": event.name, "gpus": event.gpus});
            facts("host_registered", Tone::Good, text, detail)
        }
        Kind::HostHealthChanged(event) => {
            let health = word(event.health().as_str_name(), "HOST_HEALTH_");
            let tone = match event.health() {
                v1::HostHealth::Up => Tone::Good,
                v1::HostHealth::Lost => Tone::Bad,
                _ => Tone::Waiting,
            };
            let cause = word::silence_cause(event.health(), event.one_way);
            let why = event.one_way.then(|| format!(": {}", word::ONE_WAY));
            let text = format!("{} is {health}{}", event.name, why.unwrap_or_default());
            let detail = json!({
                "host_id": event.host_id, "name": event.name, "health": health, "cause": cause,
            });
            facts("host_health_changed", tone, text, detail)
        }
        Kind::GpuHealthChanged(event) => {
            let fault = event
                .health
                .as_ref()
                .and_then(|health| health.fault.as_ref());
            let (tone, health) = match fault {
                Some(fault) => (Tone::Bad, format!("{}: {}", fault.signal, fault.detail)),
                None => (Tone::Good, "healthy".to_owned()),
            };
            let text = format!("{} on {}: {health}", event.gpu, event.host);
            let detail = json!({
                "gpu": event.gpu, "host": event.host, "signal": fault.map(|fault| &fault.signal),
                "detail": fault.map(|fault| &fault.detail),
            });
            facts("gpu_health_changed", tone, text, detail)
        }
        _ => return None,
    })
}

fn replica_changed(event: &v1::ReplicaChanged) -> Facts {
    let replica = event.replica_id;
    let standing = word::word(event.standing().as_str_name(), "REPLICA_STANDING_");
    let (tone, what) = match event.standing() {
        v1::ReplicaStanding::Learner => (Tone::Waiting, "is a learner"),
        v1::ReplicaStanding::Voter => (Tone::Good, "is a voter"),
        _ => (Tone::Waiting, "left the group"),
    };
    let text = format!("replica {replica} at {} {what}", event.address);
    let detail = json!({"replica": replica, "address": event.address, "standing": standing});
    facts("replica_changed", tone, text, detail)
}

fn health(kind: &Kind) -> Option<Facts> {
    Some(match kind {
        Kind::HealthChanged(event) => {
            let component = word::component(event.component.as_ref(), &event.host);
            let tone = match event.to.as_str() {
                "healthy" => Tone::Good,
                "suspect" | "probation" | "checking" | "repairing" => Tone::Waiting,
                _ => Tone::Bad,
            };
            let why = match (event.rule.as_str(), event.evidence.as_str()) {
                ("", evidence) => evidence.to_owned(),
                (rule, "") => format!("rule {rule}"),
                (rule, evidence) => format!("rule {rule}: {evidence}"),
            };
            let text = format!("{component}: {} -> {} ({why})", event.from, event.to);
            let detail = json!({
                "component": component, "host": event.host, "from": event.from, "to": event.to,
                "rule": event.rule, "evidence": event.evidence,
            });
            facts("health_changed", tone, text, detail)
        }
        Kind::HealthNoted(event) => {
            let tone = match event.note.as_str() {
                "alert" | "doubt" | "incident" => Tone::Bad,
                "rules" => Tone::Plain,
                _ => Tone::Waiting,
            };
            let text = format!("{}: {}: {}", event.note, event.subject, event.detail);
            let detail = json!({
                "note": event.note, "subject": event.subject, "detail": event.detail,
                "job": event.job_id,
            });
            facts("health_noted", tone, text, detail)
        }
        _ => return None,
    })
}

fn block_planned(event: &v1::BlockPlanned) -> Facts {
    let target = word::block_target(event.target.as_ref());
    let author = &event.author;
    let Some(block) = &event.block else {
        let text = format!("{target} cancelled by {author}");
        let detail = json!({"target": target, "author": author, "planned_at": null});
        return facts("block_planned", Tone::Plain, text, detail);
    };
    let planned = block.planned.unwrap_or_default();
    let at = instant(planned.at_ms);
    let text = format!("{target} from {at} by {author}: {}", block.reason);
    let detail = json!({
        "target": target, "author": author, "reason": block.reason, "evidence": block.evidence,
        "expires_at": block.expires_at_ms.map(instant),
        "drain_deadline": block.drain_deadline_ms.map(instant), "planned_at": at,
        "notice_ms": planned.notice_ms,
    });
    facts("block_planned", Tone::Plain, text, detail)
}

fn decisions(kind: &Kind) -> Option<Facts> {
    Some(match kind {
        Kind::Blocked(event) => {
            let target = word::block_target(event.target.as_ref());
            let block = event.block.clone().unwrap_or_default();
            let text = format!("{target} by {}: {}", block.author, block.reason);
            let detail = json!({
                "target": target, "author": block.author, "reason": block.reason,
                "evidence": block.evidence, "expires_at": block.expires_at_ms.map(instant),
                "drain_deadline": block.drain_deadline_ms.map(instant),
            });
            facts("blocked", Tone::Waiting, text, detail)
        }
        Kind::Unblocked(event) => {
            let target = word::block_target(event.target.as_ref());
            let text = format!("{target} by {}", event.author);
            let detail = json!({"target": target, "author": event.author});
            facts("unblocked", Tone::Good, text, detail)
        }
        Kind::BlockPlanned(event) => block_planned(event),
        Kind::JobDefaultsSet(event) => {
            let max = event.attempts_without_progress_max;
            let text =
                format!("a unit with a checkpoint fails after {max} attempts without a newer one");
            let detail = json!({
                "attempts_without_progress_max": max,
                "bad_checkpoints_max": event.bad_checkpoints_max,
                "restore_window_ms": event.restore_window_ms,
            });
            facts("job_defaults_set", Tone::Plain, text, detail)
        }
        Kind::QueueSet(event) => {
            let detail = json!({"name": event.name});
            facts("queue_set", Tone::Plain, event.name.clone(), detail)
        }
        Kind::QueuesConfigured(event) => {
            let text = format!("by {}: {}", event.author, event.queues.join(", "));
            let detail = json!({"author": event.author, "queues": event.queues});
            facts("queues_configured", Tone::Plain, text, detail)
        }
        Kind::TopologySet(event) => {
            let text = format!("by {}", event.author);
            let detail = json!({"author": event.author});
            facts("topology_set", Tone::Plain, text, detail)
        }
        other => return cells(other),
    })
}

fn cells(kind: &Kind) -> Option<Facts> {
    Some(match kind {
        Kind::LevelsChanged(event) => {
            let named = |levels: &[String]| {
                if levels.is_empty() {
                    "none".to_owned()
                } else {
                    levels.join(", ")
                }
            };
            let text = format!(
                "above hosts: {}; inside: {}",
                named(&event.above),
                named(&event.inside)
            );
            let detail = json!({"above": event.above, "inside": event.inside});
            facts("levels_changed", Tone::Plain, text, detail)
        }
        Kind::HostCellsDoubted(event) => {
            let (tone, told) = match event.flaws.as_slice() {
                [] => (Tone::Good, "location confirmed".to_owned()),
                flaws => (Tone::Waiting, flaws.join("; ")),
            };
            let text = format!("{}: {told}", event.name);
            let detail =
                json!({"host_id": event.host_id, "name": event.name, "flaws": event.flaws});
            facts("host_cells_doubted", tone, text, detail)
        }
        _ => return None,
    })
}
