//! Names of objects in scripts.

use muster_engine::state::State;
use muster_model::ids::{HostId, JobId, UnitIndex};
use muster_model::topology::{CellId, GpuMask};

/// A host's name.
pub(crate) fn host_name(state: &State, id: HostId) -> String {
    let host = state.host(id);
    host.map_or_else(|| format!("host {id}"), |host| host.name.to_string())
}

/// A job's name.
pub(crate) fn job_name(state: &State, id: JobId) -> String {
    let job = state.job(id);
    job.map_or_else(|| format!("job {id}"), |job| job.spec.name.clone())
}

/// A job's name, with the unit's index if it has several units.
pub(crate) fn unit_name(state: &State, id: JobId, unit: UnitIndex) -> String {
    let name = job_name(state, id);
    match state.job(id) {
        Some(job) if job.spec.units() > 1 => format!("{name}/{unit}"),
        _ => name,
    }
}

/// A cell's name: its path, its host, or its GPUs on the host (`n1:socket[0-3]`).
pub(crate) fn cell_name(state: &State, cell: &CellId) -> String {
    match cell {
        CellId::Above(path) => path.to_string(),
        CellId::Host(host) => host_name(state, *host),
        CellId::Inside(host, level, mask) => {
            let level = state.topology.name(*level).unwrap_or("?");
            format!(
                "{}:{level}[{}]",
                host_name(state, *host),
                mask_ranges(*mask)
            )
        }
    }
}

fn mask_ranges(mask: GpuMask) -> String {
    let positions = mask.positions().filter_map(|gpu| u32::try_from(gpu).ok());
    gpu_ranges(&positions.collect::<Vec<u32>>())
}

/// Indexes in ascending order, runs combined: `0-3,6`.
pub(crate) fn gpu_ranges(indexes: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for index in indexes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => runs.push((*index, *index)),
        }
    }
    let texts = runs.into_iter().map(|(first, last)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    });
    texts.collect::<Vec<_>>().join(",")
}

/// A duration in the syntax of scripts: `1h30m`.
pub(crate) fn duration_text(span_ms: u64) -> String {
    const UNITS: [(&str, u64); 5] = [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    let mut rest = span_ms;
    let mut text = String::new();
    for (unit, factor_ms) in UNITS {
        if rest >= factor_ms {
            text.push_str(&format!("{}{unit}", rest / factor_ms));
            rest %= factor_ms;
        }
    }
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_gpus_are_shown_as_a_range() {
        assert_eq!(gpu_ranges(&[0, 1, 2, 3, 6]), "0-3,6");
        assert_eq!(gpu_ranges(&[]), "");
    }

    #[test]
    fn lengths_of_time_read_as_they_are_written() {
        assert_eq!(duration_text(5_400_000), "1h30m");
        assert_eq!(duration_text(0), "0s");
        assert_eq!(duration_text(1_200), "1s200ms");
    }
}
