//! Events as text.

use muster_job_file::human::compress;

use crate::event::cluster::{
    AccessChanged, BlockPlanned, HealthChanged, HostHealthChanged, LevelsChanged, Membership,
    ReplicaChanged,
};
use crate::event::job::{AttemptEnded, AttemptPlaced, MemberSwapped, UnitsMoved};
use crate::event::{Fact, HostNames, host_name};
use crate::host::SilenceCause;

impl Fact {
    /// The event in one line.
    // Long, with one arm for each kind, so that the compiler finds a missing one.
    pub(crate) fn text(&self, hosts: &HostNames) -> String {
        let on_host = |task: u32, id: u32| format!("task {task} on {}", host_name(id, hosts));
        match self {
            Self::JobSubmitted(it) => format!("{} by {} to queue {}", it.name, it.user, it.queue),
            Self::JobCancelRequested(it) => format!("by {}: {}", it.author, it.reason),
            Self::JobSuspended(it) => format!("by {} ({}): {}", it.author, it.mode, it.reason),
            Self::JobResumed(it) => format!("by {}: {}", it.author, it.reason),
            Self::JobFinished(it) if it.reason.is_empty() => it.phase.to_string(),
            Self::JobFinished(it) => format!("{}: {}", it.phase, it.reason),
            Self::JobEligible(_) => "all dependencies satisfied".to_owned(),
            Self::JobPruned(_) => "removed from the state: ended long ago".to_owned(),
            Self::AttemptPlaced(it) => attempt_placed(it, hosts),
            Self::GangReleased(it) => format!(
                "unit {}: all members are prepared; they meet on port {}",
                it.unit, it.master_port
            ),
            Self::AttemptRunning(it) => format!("unit {}: all tasks are running", it.unit),
            Self::AttemptStopping(it) => format!("unit {}: {}", it.unit, it.reason),
            Self::AttemptEnded(it) => attempt_ended(it),
            Self::CheckpointCommitted(it) => {
                format!("unit {}: step {} at {}", it.unit, it.step, it.path)
            }
            Self::CheckpointDamaged(it) => {
                format!(
                    "unit {}: step {} is damaged: {}",
                    it.unit, it.step, it.reason
                )
            }
            Self::CheckpointsForgotten(it) => format!(
                "unit {}: steps {} are not kept, their folders are {}",
                it.unit,
                listed(&it.steps),
                if it.removed { "removed" } else { "kept" }
            ),
            Self::UnitRequeued(it) => format!("unit {}: to be retried ({})", it.unit, it.reason),
            Self::UnitRetried(it) => format!(
                "unit {}: retried in place ({} of {} in a row)",
                it.unit, it.retry, it.retries_max
            ),
            Self::MemberLeaving(it) => format!(
                "{}: asked to stop while the others continue ({})",
                on_host(it.task, it.host_id),
                it.reason
            ),
            Self::MemberVacated(it) => format!(
                "{}: gone, vacant while the others continue ({}): {}",
                on_host(it.task, it.host_id),
                it.reason,
                it.detail
            ),
            Self::MemberSwapped(it) => member_swapped(it, hosts),
            Self::UnitClaimed(it) => format!(
                "unit {}: {} GPUs reserved, {} attempts stopped for it",
                it.unit,
                it.gpus,
                it.victims.len()
            ),
            Self::UnitsMoved(it) => units_moved(it),
            Self::ClaimDropped(it) => format!("unit {}: {}", it.unit, it.reason),
            Self::AllocationBasisChanged(it) => {
                let basis = it
                    .allocation_basis
                    .as_ref()
                    .map_or_else(String::new, |basis| basis.text());
                format!("unit {}: {basis}", it.unit)
            }
            Self::TaskPrepared(it) => on_host(it.task, it.host_id),
            Self::TaskStarted(it) => on_host(it.task, it.host_id),
            Self::TaskExited(it) => format!("{}: {}", on_host(it.task, it.host_id), it.exit),
            Self::TaskLost(it) => format!("{}: {}", on_host(it.task, it.host_id), it.detail),
            Self::LeadershipStarted(it) => {
                format!(
                    "replica {} leads (epoch {})",
                    it.replica, it.leadership_epoch
                )
            }
            Self::ReplicaChanged(it) => replica_changed(it),
            Self::HostRegistered(it) => format!("{} with {} GPUs", it.name, it.gpus),
            Self::HostHealthChanged(it) => host_health_changed(it),
            Self::GpuHealthChanged(it) => match (&it.signal, &it.detail) {
                (Some(signal), Some(detail)) => {
                    format!("{} on {}: {signal}: {detail}", it.gpu, it.host)
                }
                _ => format!("{} on {}: healthy", it.gpu, it.host),
            },
            Self::HealthChanged(it) => health_changed(it),
            Self::HealthNoted(it) => format!("{}: {}: {}", it.note, it.subject, it.detail),
            Self::Blocked(it) => format!("{} by {}: {}", it.target, it.author, it.reason),
            Self::Unblocked(it) => format!("{} by {}", it.target, it.author),
            Self::BlockPlanned(it) => block_planned(it),
            Self::JobDefaultsSet(it) => format!(
                "a unit with a checkpoint fails after {} attempts without a newer one",
                it.attempts_without_progress_max
            ),
            Self::QueueSet(it) => it.name.clone(),
            Self::QueuesConfigured(it) => format!("by {}: {}", it.author, it.queues.join(", ")),
            Self::TopologySet(it) => format!("by {}", it.author),
            Self::LevelsChanged(it) => levels_changed(it),
            Self::HostCellsDoubted(it) if it.flaws.is_empty() => {
                format!("{}: location confirmed", it.name)
            }
            Self::HostCellsDoubted(it) => format!("{}: {}", it.name, it.flaws.join("; ")),
            Self::AccessChanged(it) => access_changed(it),
        }
    }
}

fn listed(numbers: &[u64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    numbers.join(", ")
}

fn attempt_placed(event: &AttemptPlaced, hosts: &HostNames) -> String {
    let names: Vec<String> = event
        .host_ids
        .iter()
        .map(|id| host_name(*id, hosts))
        .collect();
    let from = event
        .resumes_step
        .map_or_else(String::new, |step| format!(", resumes from step {step}"));
    format!(
        "unit {}, attempt {}: {} GPUs on {}{from}",
        event.unit,
        event.number,
        event.gpus,
        compress(&names)
    )
}

fn attempt_ended(event: &AttemptEnded) -> String {
    let cause = event
        .attribution
        .as_ref()
        .map_or_else(String::new, |cause| format!("; cause: {}", cause.text()));
    format!("unit {}: {}{cause}", event.unit, event.detail)
}

fn member_swapped(event: &MemberSwapped, hosts: &HostNames) -> String {
    format!(
        "task {}: swapped, runs on {} with {} GPUs after {} ({})",
        event.task,
        host_name(event.host_id, hosts),
        event.gpus,
        host_name(event.from_host_id, hosts),
        event.reason
    )
}

fn units_moved(event: &UnitsMoved) -> String {
    format!(
        "unit {}: {} attempts moved for defragmentation, {} GPU-seconds lost for {} saved",
        event.unit,
        event.moved.len(),
        event.cost_gpu_ms / 1_000,
        event.gain_gpu_ms / 1_000
    )
}

fn replica_changed(event: &ReplicaChanged) -> String {
    let what = match event.membership {
        Membership::Learner => "is a learner",
        Membership::Voter => "is a voter",
        Membership::Removed | Membership::Unknown => "left the group",
    };
    format!("replica {} at {} {what}", event.replica, event.address)
}

fn host_health_changed(event: &HostHealthChanged) -> String {
    let cause = match event.cause {
        Some(SilenceCause::OneWay) => format!(": {}", SilenceCause::ONE_WAY),
        _ => String::new(),
    };
    format!("{} is {}{cause}", event.name, event.health)
}

fn health_changed(event: &HealthChanged) -> String {
    let cause = match (event.rule.as_str(), event.evidence.as_str()) {
        ("", evidence) => evidence.to_owned(),
        (rule, "") => format!("rule {rule}"),
        (rule, evidence) => format!("rule {rule}: {evidence}"),
    };
    format!(
        "{}: {} -> {} ({cause})",
        event.component, event.from, event.to
    )
}

fn block_planned(event: &BlockPlanned) -> String {
    let (target, author) = (&event.target, &event.author);
    match (&event.plan, event.planned_at) {
        (Some(plan), Some(at)) => format!("{target} from {at} by {author}: {}", plan.reason),
        _ => format!("{target} cancelled by {author}"),
    }
}

fn levels_changed(event: &LevelsChanged) -> String {
    let named = |levels: &[String]| match levels {
        [] => "none".to_owned(),
        levels => levels.join(", "),
    };
    format!(
        "above hosts: {}; inside: {}",
        named(&event.above),
        named(&event.inside)
    )
}

fn access_changed(event: &AccessChanged) -> String {
    match event {
        AccessChanged::UserAdded {
            name,
            role,
            queues,
            author,
        } => {
            let bound = match queues.as_slice() {
                [] => String::new(),
                queues => format!(" in {}", queues.join(", ")),
            };
            format!("user {name} added by {author}: {role}{bound}")
        }
        AccessChanged::UserRemoved { name, author } => format!("user {name} removed by {author}"),
        AccessChanged::UserTokenRotated { name, author } => {
            format!("user {name} token rotated by {author}")
        }
        AccessChanged::JoinTokenAdded {
            id,
            uses_max,
            host_pattern,
            expires_at,
            author,
        } => {
            let hosts = host_pattern.as_deref().unwrap_or("*");
            format!(
                "join token {id} created by {author}: {uses_max} hosts named {hosts} until {expires_at}"
            )
        }
        AccessChanged::JoinTokenRevoked { id, author } => {
            format!("join token {id} revoked by {author}")
        }
        AccessChanged::WorkerJoined {
            host,
            join_token,
            uses_left,
        } => format!("worker {host} joined with token {join_token}, {uses_left} uses left"),
        AccessChanged::Unknown => "a change that this version does not know".to_owned(),
    }
}
