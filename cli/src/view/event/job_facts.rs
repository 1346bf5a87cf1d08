//! Events about jobs.

use muster_proto::v1;
use muster_proto::v1::event::Kind;
use serde_json::json;

use crate::output::{Tone, instant};
use crate::view::event::{Facts, HostNames, host_list, host_name};
use crate::view::standing::StandingView;
use crate::view::{BlameView, describe_exit, describe_stop, job_phase, phase_tone, word};

/// Text of an event about a job; `None` for others.
pub(super) fn of(kind: &Kind, hosts: &HostNames) -> Option<Facts> {
    let (job, facts) = job_level(kind)
        .or_else(|| attempt_level(kind, hosts))
        .or_else(|| retry_level(kind, hosts))
        .or_else(|| ground_level(kind))
        .or_else(|| task_level(kind, hosts))?;
    Some(Facts {
        job: Some(job),
        ..facts
    })
}

fn facts(kind: &'static str, tone: Tone, text: String, detail: serde_json::Value) -> Facts {
    Facts {
        kind,
        job: None,
        text,
        detail,
        tone,
    }
}

fn job_level(kind: &Kind) -> Option<(u64, Facts)> {
    Some(match kind {
        Kind::JobSubmitted(event) => {
            let text = format!("{} by {} to queue {}", event.name, event.user, event.queue);
            let detail = json!({"name": event.name, "user": event.user, "queue": event.queue});
            (
                event.job_id,
                facts("job_submitted", Tone::Plain, text, detail),
            )
        }
        Kind::JobCancelRequested(event) => {
            let text = format!("by {}: {}", event.author, event.reason);
            let detail = json!({"author": event.author, "reason": event.reason});
            (
                event.job_id,
                facts("job_cancel_requested", Tone::Waiting, text, detail),
            )
        }
        Kind::JobSuspended(event) => {
            let mode = word(event.mode().as_str_name(), "SUSPEND_MODE_");
            let text = format!("by {} ({mode}): {}", event.author, event.reason);
            let detail = json!({"author": event.author, "reason": event.reason, "mode": mode});
            (
                event.job_id,
                facts("job_suspended", Tone::Waiting, text, detail),
            )
        }
        Kind::JobResumed(event) => {
            let text = format!("by {}: {}", event.author, event.reason);
            let detail = json!({"author": event.author, "reason": event.reason});
            (event.job_id, facts("job_resumed", Tone::Good, text, detail))
        }
        Kind::JobFinished(event) => {
            let phase = job_phase(event.phase());
            let text = if event.reason.is_empty() {
                phase.clone()
            } else {
                format!("{phase}: {}", event.reason)
            };
            let tone = phase_tone(&phase);
            let detail = json!({"phase": phase, "reason": event.reason});
            (event.job_id, facts("job_finished", tone, text, detail))
        }
        Kind::JobEligible(event) => {
            let text = "all dependencies satisfied".to_owned();
            (
                event.job_id,
                facts("job_eligible", Tone::Good, text, json!({})),
            )
        }
        Kind::JobPruned(event) => {
            let text = "removed from the state: ended long ago".to_owned();
            (
                event.job_id,
                facts("job_pruned", Tone::Faint, text, json!({})),
            )
        }
        _ => return None,
    })
}

fn attempt_level(kind: &Kind, hosts: &HostNames) -> Option<(u64, Facts)> {
    Some(match kind {
        Kind::AttemptPlaced(event) => {
            let names = host_list(&event.host_ids, hosts);
            let (unit, number, gpus) = (event.unit, event.number, event.gpus);
            let resumes_step = event.resumes_step;
            let from =
                resumes_step.map_or_else(String::new, |step| format!(", resumes from step {step}"));
            let text = format!("unit {unit}, attempt {number}: {gpus} GPUs on {names}{from}");
            let detail = json!({
                "unit": unit, "epoch": event.epoch, "number": number, "host_ids": event.host_ids,
                "gpus": gpus, "resumes_step": resumes_step,
            });
            (
                event.job_id,
                facts("attempt_placed", Tone::Plain, text, detail),
            )
        }
        Kind::GangReleased(event) => {
            let (unit, port) = (event.unit, event.master_port);
            let text = format!("unit {unit}: all members are prepared; they meet on port {port}");
            let detail = json!({
                "unit": unit, "epoch": event.epoch, "host_ids": event.host_ids,
                "master_port": port,
            });
            (
                event.job_id,
                facts("gang_released", Tone::Plain, text, detail),
            )
        }
        Kind::AttemptRunning(event) => {
            let text = format!("unit {}: all tasks are running", event.unit);
            let detail = json!({"unit": event.unit, "epoch": event.epoch});
            (
                event.job_id,
                facts("attempt_running", Tone::Good, text, detail),
            )
        }
        Kind::AttemptStopping(event) => {
            let (why, cause) = stopped(event.reason.as_ref(), hosts);
            let text = format!("unit {}: {why}", event.unit);
            let detail = json!({
                "unit": event.unit, "epoch": event.epoch, "reason": why, "detail": cause,
            });
            (
                event.job_id,
                facts("attempt_stopping", Tone::Waiting, text, detail),
            )
        }
        Kind::AttemptEnded(event) => {
            let blame = event.blame.clone().map(|blame| blamed(blame, hosts));
            let blamed = blame.as_ref().map(BlameView::text);
            let blamed = blamed.map_or_else(String::new, |text| format!("; blamed on {text}"));
            let text = format!("unit {}: {}{blamed}", event.unit, event.detail);
            let detail = json!({
                "unit": event.unit, "epoch": event.epoch, "host_ids": event.host_ids,
                "detail": event.detail, "blame": blame,
            });
            (
                event.job_id,
                facts("attempt_ended", Tone::Plain, text, detail),
            )
        }
        other => return checkpoint_level(other),
    })
}

/// Stop reason with the host's name, and the evidence alone.
fn stopped(reason: Option<&v1::StopReason>, hosts: &HostNames) -> (String, String) {
    use v1::stop_reason::Kind::{DrainHostId, HostFaultId};
    let Some(reason) = reason else {
        return (String::new(), String::new());
    };
    let mut reason = reason.clone();
    if let Some(DrainHostId(id) | HostFaultId(id)) = reason.kind {
        reason.host = host_name(id, hosts);
    }
    (describe_stop(&reason), reason.detail)
}

/// Attribution of an end, with the host's name.
fn blamed(blame: v1::Blame, hosts: &HostNames) -> BlameView {
    let kind = { blame.component.as_ref() }.and_then(|component| component.kind.as_ref());
    let id = match kind {
        Some(v1::component::Kind::HostId(id)) => Some(*id),
        Some(v1::component::Kind::Nic(nic)) => Some(nic.host_id),
        _ => None,
    };
    let host = id.map_or_else(String::new, |id| host_name(id, hosts));
    BlameView::from(v1::Blame { host, ..blame })
}

fn retry_level(kind: &Kind, hosts: &HostNames) -> Option<(u64, Facts)> {
    Some(match kind {
        Kind::UnitRequeued(event) => {
            let reason = word(event.reason().as_str_name(), "RESTART_REASON_");
            let text = format!("unit {}: to be retried ({reason})", event.unit);
            let not_before = (event.not_before_ms > 0).then(|| instant(event.not_before_ms));
            let detail = json!({"unit": event.unit, "reason": reason, "not_before": not_before});
            (
                event.job_id,
                facts("unit_requeued", Tone::Waiting, text, detail),
            )
        }
        Kind::UnitRetried(event) => {
            let (unit, retry, retries_max) = (event.unit, event.retry, event.retries_max);
            let text = format!("unit {unit}: retried in place ({retry} of {retries_max} in a row)");
            let detail = json!({
                "unit": unit, "epoch": event.epoch, "retry": retry, "retries_max": retries_max,
            });
            (
                event.job_id,
                facts("unit_retried", Tone::Waiting, text, detail),
            )
        }
        other => return member_level(other, hosts),
    })
}

fn member_level(kind: &Kind, hosts: &HostNames) -> Option<(u64, Facts)> {
    Some(match kind {
        Kind::MemberLeaving(event) => {
            let (unit, task) = (event.unit, event.task);
            let (why, cause) = stopped(event.reason.as_ref(), hosts);
            let host = host_name(event.host_id, hosts);
            let text =
                format!("task {task} on {host}: asked to stop while the others continue ({why})");
            let detail = json!({
                "unit": unit, "epoch": event.epoch, "task": task, "host_id": event.host_id,
                "reason": why, "detail": cause,
            });
            let facts = facts("member_leaving", Tone::Waiting, text, detail);
            (event.job_id, facts)
        }
        Kind::MemberVacated(event) => {
            let reason = word(event.reason().as_str_name(), "RESTART_REASON_");
            let (unit, task) = (event.unit, event.task);
            let host = host_name(event.host_id, hosts);
            let text = format!(
                "task {task} on {host}: gone, vacant while the others continue ({reason}): {}",
                event.detail
            );
            let detail = json!({
                "unit": unit, "epoch": event.epoch, "task": task, "member_epoch": event.member_epoch,
                "host_id": event.host_id, "reason": reason, "charged": event.charged,
                "not_before": instant(event.not_before_ms), "detail": event.detail,
            });
            let facts = facts("member_vacated", Tone::Waiting, text, detail);
            (event.job_id, facts)
        }
        Kind::MemberSwapped(event) => {
            let reason = word(event.reason().as_str_name(), "RESTART_REASON_");
            let (unit, task) = (event.unit, event.task);
            let (host, from) = (event.host_id, event.from_host_id);
            let text = format!(
                "task {task}: swapped, runs on {} with {} GPUs after {} ({reason})",
                host_name(host, hosts),
                event.gpus,
                host_name(from, hosts)
            );
            let detail = json!({
                "unit": unit, "epoch": event.epoch, "task": task, "member_epoch": event.member_epoch,
                "host_id": host, "from_host_id": from, "gpus": event.gpus, "reason": reason,
            });
            let facts = facts("member_swapped", Tone::Plain, text, detail);
            (event.job_id, facts)
        }
        _ => return None,
    })
}

fn checkpoint_level(kind: &Kind) -> Option<(u64, Facts)> {
    Some(match kind {
        Kind::CheckpointCommitted(event) => {
            let text = format!("unit {}: step {} at {}", event.unit, event.step, event.path);
            let detail = json!({
                "unit": event.unit, "epoch": event.epoch, "step": event.step, "path": event.path,
                "size_bytes": event.size_bytes,
            });
            (
                event.job_id,
                facts("checkpoint_committed", Tone::Good, text, detail),
            )
        }
        Kind::CheckpointSpoiled(event) => {
            let text = format!(
                "unit {}: step {} is spoiled: {}",
                event.unit, event.step, event.reason
            );
            let detail = json!({
                "unit": event.unit, "epoch": event.epoch, "step": event.step, "reason": event.reason,
            });
            (
                event.job_id,
                facts("checkpoint_spoiled", Tone::Bad, text, detail),
            )
        }
        Kind::CheckpointsForgotten(event) => {
            let steps: Vec<String> = event.steps.iter().map(ToString::to_string).collect();
            let folders = if event.removed { "removed" } else { "kept" };
            let text = format!(
                "unit {}: steps {} are not kept, their folders are {folders}",
                event.unit,
                steps.join(", ")
            );
            let detail = json!({
                "unit": event.unit, "steps": event.steps, "removed": event.removed,
            });
            (
                event.job_id,
                facts("checkpoints_forgotten", Tone::Plain, text, detail),
            )
        }
        _ => return None,
    })
}

fn ground_level(kind: &Kind) -> Option<(u64, Facts)> {
    Some(match kind {
        Kind::UnitClaimed(event) => {
            let (unit, gpus, victims) = (event.unit, event.gpus, event.victims.len());
            let text =
                format!("unit {unit}: {gpus} GPUs reserved, {victims} attempts stopped for it");
            let victims = event.victims.iter().map(
                |victim| json!({"job": victim.job_id, "unit": victim.unit, "epoch": victim.epoch}),
            );
            let detail = json!({
                "unit": unit, "gpus": gpus, "victims": victims.collect::<Vec<_>>(),
                "expected_at": event.expected_at_ms.map(instant),
            });
            let tone = Tone::Waiting;
            (event.job_id, facts("unit_claimed", tone, text, detail))
        }
        Kind::UnitsMoved(event) => {
            let (unit, moved) = (event.unit, event.moved.len());
            let (cost_gpu_ms, gain_gpu_ms) = (event.cost_gpu_ms, event.gain_gpu_ms);
            let text = format!(
                "unit {unit}: {moved} attempts moved for defragmentation, {} GPU-seconds lost for {} saved",
                cost_gpu_ms / 1_000,
                gain_gpu_ms / 1_000
            );
            let moved = event.moved.iter().map(
                |victim| json!({"job": victim.job_id, "unit": victim.unit, "epoch": victim.epoch}),
            );
            let detail = json!({
                "unit": unit, "moved": moved.collect::<Vec<_>>(),
                "cost_gpu_ms": cost_gpu_ms, "gain_gpu_ms": gain_gpu_ms,
            });
            let tone = Tone::Waiting;
            (event.job_id, facts("units_moved", tone, text, detail))
        }
        Kind::ClaimDropped(event) => {
            let text = format!("unit {}: {}", event.unit, event.reason);
            let detail = json!({"unit": event.unit, "reason": event.reason});
            let tone = Tone::Waiting;
            (event.job_id, facts("claim_dropped", tone, text, detail))
        }
        Kind::StandingChanged(event) => {
            let standing = event.standing.as_ref().map(StandingView::from);
            let words = standing
                .as_ref()
                .map_or_else(String::new, StandingView::text);
            let text = format!("unit {}: {words}", event.unit);
            let detail = json!({"unit": event.unit, "epoch": event.epoch, "standing": standing});
            let tone = Tone::Plain;
            (event.job_id, facts("standing_changed", tone, text, detail))
        }
        _ => return None,
    })
}

fn on_host(unit: u32, epoch: u64, task: u32, host_id: u32) -> serde_json::Value {
    json!({"unit": unit, "epoch": epoch, "task": task, "host_id": host_id})
}

fn task_level(kind: &Kind, hosts: &HostNames) -> Option<(u64, Facts)> {
    Some(match kind {
        Kind::TaskPrepared(event) => {
            let text = format!("task {} on {}", event.task, host_name(event.host_id, hosts));
            let detail = on_host(event.unit, event.epoch, event.task, event.host_id);
            (
                event.job_id,
                facts("task_prepared", Tone::Faint, text, detail),
            )
        }
        Kind::TaskStarted(event) => {
            let text = format!("task {} on {}", event.task, host_name(event.host_id, hosts));
            let detail = on_host(event.unit, event.epoch, event.task, event.host_id);
            (
                event.job_id,
                facts("task_started", Tone::Plain, text, detail),
            )
        }
        Kind::TaskExited(event) => {
            let clean = event.exit.as_ref().is_some_and(is_clean);
            let tone = if clean { Tone::Plain } else { Tone::Bad };
            let exit = event.exit.clone().map(describe_exit).unwrap_or_default();
            let host = host_name(event.host_id, hosts);
            let text = format!("task {} on {host}: {exit}", event.task);
            let detail = json!({
                "unit": event.unit, "epoch": event.epoch, "task": event.task,
                "host_id": event.host_id, "exit": exit,
            });
            (event.job_id, facts("task_exited", tone, text, detail))
        }
        Kind::TaskLost(event) => {
            let host = host_name(event.host_id, hosts);
            let text = format!("task {} on {host}: {}", event.task, event.detail);
            let detail = json!({
                "unit": event.unit, "epoch": event.epoch, "task": event.task,
                "host_id": event.host_id, "detail": event.detail,
            });
            (event.job_id, facts("task_lost", Tone::Bad, text, detail))
        }
        _ => return None,
    })
}

fn is_clean(exit: &v1::Exit) -> bool {
    exit.code == Some(0)
}
