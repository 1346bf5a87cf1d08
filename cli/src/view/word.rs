//! Members of the wire's enumerations as displayed words.

use muster_proto::v1;

use crate::output::Tone;

/// `JOB_PHASE_QUEUED` without its prefix, in lower case: `queued`.
pub(crate) fn word(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix)
        .unwrap_or(name)
        .to_ascii_lowercase()
}

/// Description of a host whose link works in one direction only.
pub(crate) const ONE_WAY: &str = "its heartbeats arrive, but acknowledgements do not reach it";

/// Cause of a host's silence, in one word; `None` if it is not silent.
pub(crate) const fn silence_cause(health: v1::HostHealth, one_way: bool) -> Option<&'static str> {
    match (health, one_way) {
        (v1::HostHealth::Up | v1::HostHealth::Unspecified, _) => None,
        (_, true) => Some("one_way"),
        (_, false) => Some("silence"),
    }
}

/// A job's phase.
pub(crate) fn job_phase(phase: v1::JobPhase) -> String {
    word(phase.as_str_name(), "JOB_PHASE_")
}

/// Tone of the phase of a job, unit or task.
pub(crate) fn phase_tone(phase: &str) -> Tone {
    match phase {
        "running" | "succeeded" => Tone::Good,
        "failed" | "fenced" | "gone" => Tone::Bad,
        "cancelled" => Tone::Faint,
        _ => Tone::Waiting,
    }
}

/// A host or GPU that can be blocked: `host node01`, `GPU-...`.
pub(crate) fn block_target(target: Option<&v1::BlockTarget>) -> String {
    use v1::block_target::Target;
    match target.and_then(|target| target.target.as_ref()) {
        Some(Target::Host(name)) => format!("host {name}"),
        Some(Target::Gpu(uuid)) => uuid.clone(),
        None => "something".to_owned(),
    }
}

/// A GPU, an adapter or a host with a health record: `GPU-... on node01`, `host node01`.
pub(crate) fn component(component: Option<&v1::Component>, host: &str) -> String {
    use v1::component::Kind;
    match component.and_then(|component| component.kind.as_ref()) {
        Some(Kind::Gpu(uuid)) if host.is_empty() => uuid.clone(),
        Some(Kind::Gpu(uuid)) => format!("{uuid} on {host}"),
        Some(Kind::Nic(nic)) => format!("{} on {host}", nic.name),
        Some(Kind::HostId(_)) => format!("host {host}"),
        Some(Kind::Rack(name)) => format!("rack {name}"),
        None => "something".to_owned(),
    }
}

/// The nonzero counts, with their names: `3 running, 1 waiting`.
pub(super) fn counted<N: Copy + Into<u64>>(counts: &[(N, &str)]) -> String {
    let named = counts.iter().map(|(count, name)| ((*count).into(), name));
    let texts: Vec<String> = named
        .filter(|(count, _): &(u64, _)| *count > 0)
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    texts.join(", ")
}
