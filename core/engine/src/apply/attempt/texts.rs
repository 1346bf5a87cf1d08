//! Texts of ends and stop orders for users: author and evidence.
//!
//! They are made of the state and the command alone, so all replicas write the same.

use std::sync::Arc;

use imbl::OrdMap;
use muster_health::component::Condition;
use muster_model::command::{Exit, MemoryUsage, StopReason};
use muster_model::health::{Component, with_detail};
use muster_model::host::Host;
use muster_model::ids::{HostId, UnitIndex};
use muster_model::lifecycle::TaskPhase;
use muster_model::spec::JobSpec;

use crate::state::{Attempt, Job, TaskRun};

/// All hosts, for their names.
pub(in crate::apply) type Hosts = OrdMap<HostId, Arc<Host>>;

/// Formats the author and the reason.
pub(in crate::apply) fn author_text(author: &str, reason: &str) -> String {
    if reason.is_empty() {
        return format!("by {author}");
    }
    format!("by {author}: {reason}")
}

/// Formats the unit for which room is made.
pub(in crate::apply) fn claimant(job: &Job, unit: UnitIndex) -> String {
    let JobSpec {
        name,
        queue,
        priority,
        ..
    } = job.spec.as_ref();
    format!(
        "job {} ({name}), unit {unit}, of queue {queue} with priority {priority}",
        job.id
    )
}

/// Formats the rule and its finding on a component; empty without a condition.
pub(in crate::apply) fn accusation(condition: Option<&Condition>) -> String {
    let found = condition.and_then(Condition::accusation);
    found.map_or_else(String::new, |found| {
        let (rule, evidence) = (&*found.rule, &*found.evidence);
        match rule {
            "" => evidence.to_owned(),
            rule => with_detail(&format!("rule {rule}"), evidence),
        }
    })
}

/// Formats the limit that an attempt exceeded, by the reason of the stop; empty for other reasons.
pub(in crate::apply) fn overdue(
    hosts: &Hosts,
    job: &Job,
    attempt: &Attempt,
    reason: &StopReason,
) -> String {
    match reason {
        StopReason::TimeLimit => {
            let span_ms = job.spec.scheduling.run_time_ms_max;
            span_ms.map_or_else(String::new, |it| format!("{it} ms (run_time_ms_max)"))
        }
        StopReason::AssemblyTimeout => not_begun(hosts, attempt),
        StopReason::NotSwapped => match attempt.vacancy() {
            Some(vacancy) => vacancy.detail.clone(),
            None => not_begun(hosts, attempt),
        },
        _ => String::new(),
    }
}

/// Formats the number of an attempt's tasks that do not run, and the first of them.
fn not_begun(hosts: &Hosts, attempt: &Attempt) -> String {
    let mut waiting = attempt.tasks.iter().filter(|run| !run.phase.has_begun());
    let Some(first) = waiting.next() else {
        return String::new();
    };
    let (count, all) = (1 + waiting.count(), attempt.tasks.len());
    let host = host_name(first.host, hosts);
    let task = first.task;
    format!("{count} of {all} do not run, the first of them task {task} on host {host}")
}

/// Returns the display name of a component.
pub(in crate::apply) fn name_of(component: &Component, hosts: &Hosts) -> String {
    match component {
        Component::Host(host) => format!("host {}", host_name(*host, hosts)),
        other => other.to_string(),
    }
}

/// Returns the name of a host.
pub(in crate::apply) fn host_name(host: HostId, hosts: &Hosts) -> String {
    hosts
        .get(&host)
        .map_or_else(|| host.to_string(), |known| known.name.to_string())
}

/// Formats the end of a task.
pub(in crate::apply) fn describe(run: &TaskRun, hosts: &Hosts) -> String {
    let TaskRun { task, phase, .. } = run;
    let host = host_name(run.host, hosts);
    let Some(exit) = &run.exit else {
        let what = match phase {
            TaskPhase::Fenced => "lost: its lease ran out",
            _ => "lost: its worker holds it no longer",
        };
        return format!("task {task} on host {host} {what}");
    };
    let how = match exit {
        Exit {
            start_error: Some(error),
            ..
        } => format!("task {task} could not be started on host {host}: {error}"),
        Exit {
            lease_expired: true,
            ..
        } => format!("task {task} on host {host} ended because its lease ran out"),
        Exit {
            out_of_memory: true,
            memory,
            ..
        } => format!(
            "task {task} was ended by its memory limit{}",
            memory_text(*memory)
        ),
        Exit {
            signal: Some(signal),
            ..
        } => format!("signal {signal} ended task {task}"),
        Exit {
            code: Some(code), ..
        } => format!("exit code {code} of task {task}"),
        Exit { .. } => format!("task {task} ended in an unknown way"),
    };
    match exit.evidence.lines().next() {
        None | Some("") => how,
        Some(line) => format!("{how}: {line}"),
    }
}

/// Formats a memory limit and the usage; empty if unknown.
fn memory_text(memory: Option<MemoryUsage>) -> String {
    const MIB: u64 = 1 << 20;
    memory.map_or_else(String::new, |memory| {
        let (limit, peak) = (memory.limit_bytes / MIB, memory.peak_bytes / MIB);
        format!(" of {limit} MiB (it had {peak} MiB)")
    })
}
