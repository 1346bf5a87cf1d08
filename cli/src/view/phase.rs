//! Phases of jobs, units and tasks in tables: their tones, and counts by phase.

use crate::output::Tone;

/// Tone of the phase of a job, unit or task.
pub(super) fn phase_tone(phase: &str) -> Tone {
    match phase {
        "running" | "succeeded" => Tone::Good,
        "failed" | "fenced" | "gone" => Tone::Bad,
        "cancelled" => Tone::Faint,
        _ => Tone::Waiting,
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
