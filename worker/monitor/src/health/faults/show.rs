//! Event lines of the fault scripts.

use muster_model::command::HostHealth;
use muster_model::event::EventKind;
use muster_model::health::Component;
use muster_model::ids::{GpuUuid, HostId, JobId};

/// GPUs by the numbers of their host and index.
pub(super) fn gpu(uuid: GpuUuid) -> String {
    format!("gpu {}/{}", uuid.0 / 1_000, uuid.0 % 1_000)
}

pub(super) fn component(component: &Component) -> String {
    match component {
        Component::Gpu(uuid) => gpu(*uuid),
        Component::Host(host) => format!("host {host}"),
        Component::Nic { host, name } => format!("port {host}:{name}"),
        Component::Rack(name) => format!("rack {name}"),
    }
}

fn hosts(hosts: &[HostId]) -> String {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    hosts.join(",")
}

/// The line of an event that concerns jobs or health; none for others.
pub(super) fn event(kind: &EventKind, job_name: &dyn Fn(JobId) -> String) -> Option<String> {
    Some(match kind {
        EventKind::AttemptPlaced {
            job,
            unit,
            hosts: on,
            ..
        } => format!("{}/{unit} placed on {}", job_name(*job), hosts(on)),
        EventKind::AttemptStopping {
            job, unit, cause, ..
        } => {
            let reason = match &cause.reason {
                muster_model::command::StopReason::GpuFault { gpu: uuid } => {
                    format!("{} is unfit", gpu(*uuid))
                }
                other => other.to_string(),
            };
            format!("{}/{unit} stopped: {reason}", job_name(*job))
        }
        EventKind::AttemptEnded {
            job,
            unit,
            detail,
            attribution: blame,
            ..
        } => {
            let blame = blame.as_deref().map_or_else(String::new, |blame| {
                let of = blame.component.as_ref().map(component);
                let of = of.map_or_else(String::new, |of| format!(" ({of})"));
                format!(
                    "; {}{of} by {}, {} pays",
                    blame.class, blame.step, blame.charge
                )
            });
            format!(
                "{}/{unit} ended: {}{blame}",
                job_name(*job),
                shortened(detail)
            )
        }
        EventKind::JobFinished { job, phase, .. } => format!("{} {phase:?}", job_name(*job)),
        EventKind::CheckpointDamaged { job, step, .. } => {
            format!("checkpoint {step} of {} is damaged", job_name(*job))
        }
        EventKind::HostHealthChanged { host, health, .. } => match health {
            HostHealth::Up => format!("host {host} is up"),
            HostHealth::Suspect => format!("host {host} is silent"),
            HostHealth::Lost => format!("host {host} is lost"),
        },
        EventKind::HealthChanged {
            component: of,
            from,
            to,
            rule,
            evidence,
            ..
        } => {
            let by = if rule.is_empty() {
                String::new()
            } else {
                format!(" by {rule}")
            };
            let evidence = shortened(evidence);
            format!("{}: {from} -> {to}{by} ({evidence})", component(of))
        }
        EventKind::HealthNoted {
            note,
            subject,
            detail,
            ..
        } => format!("{note}: {}: {}", shortened(subject), shortened(detail)),
        EventKind::Blocked { .. } => "blocked by hand".to_owned(),
        EventKind::Unblocked { .. } => "given back by hand".to_owned(),
        _ => return None,
    })
}

/// Shortens GPU UUIDs in a text of the state to their numbers.
fn shortened(text: &str) -> String {
    let mut words = Vec::new();
    for word in text.split(' ') {
        let bare = word.trim_end_matches([';', ',', ':']);
        let uuid = bare.strip_prefix("GPU-").map(|hex| hex.replace('-', ""));
        let number = uuid.and_then(|hex| u128::from_str_radix(&hex, 16).ok());
        match number {
            Some(number) => words.push(format!("{}{}", gpu(GpuUuid(number)), &word[bare.len()..])),
            None => words.push(word.to_owned()),
        }
    }
    words.join(" ")
}
