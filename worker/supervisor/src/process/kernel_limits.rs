//! The kernel's limits for each of a task's processes (`ulimit`).

use std::collections::BTreeMap;
use std::fs;

use muster_model::spec::{Ulimit, UlimitKind};
use rustix::process::{Resource, Rlimit, geteuid, getrlimit};

/// System-wide maximum of open files per process.
const OPEN_FILES_MAX_PATH: &str = "/proc/sys/fs/nr_open";

/// Limits for the child to set.
///
/// # Errors
/// A limit that this host does not allow, as a message for the user: the child could only report a number.
pub(crate) fn of_task(
    limits: &BTreeMap<UlimitKind, Ulimit>,
) -> Result<Vec<(Resource, Rlimit)>, String> {
    limits
        .iter()
        .map(|(kind, limit)| of_kind(*kind, *limit))
        .collect()
}

fn of_kind(kind: UlimitKind, limit: Ulimit) -> Result<(Resource, Rlimit), String> {
    let resource = resource(kind);
    let text = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let exceeds =
        |most: Option<u64>| most.is_some_and(|most| limit.hard.is_none_or(|hard| hard > most));
    let ours = getrlimit(resource).maximum;
    let most = match kind {
        UlimitKind::Nofile if geteuid().is_root() => open_files_max(),
        _ if geteuid().is_root() => None,
        _ => ours,
    };
    if exceeds(most) {
        return Err(format!(
            "its hard limit `{kind}` of {} is over what this host allows, {}",
            text(limit.hard),
            text(most)
        ));
    }
    let wanted = Rlimit {
        current: limit.soft,
        maximum: limit.hard,
    };
    Ok((resource, wanted))
}

fn open_files_max() -> Option<u64> {
    fs::read_to_string(OPEN_FILES_MAX_PATH)
        .ok()?
        .trim()
        .parse()
        .ok()
}

const fn resource(kind: UlimitKind) -> Resource {
    match kind {
        UlimitKind::As => Resource::As,
        UlimitKind::Core => Resource::Core,
        UlimitKind::Cpu => Resource::Cpu,
        UlimitKind::Data => Resource::Data,
        UlimitKind::Fsize => Resource::Fsize,
        UlimitKind::Memlock => Resource::Memlock,
        UlimitKind::Msgqueue => Resource::Msgqueue,
        UlimitKind::Nice => Resource::Nice,
        UlimitKind::Nofile => Resource::Nofile,
        UlimitKind::Nproc => Resource::Nproc,
        UlimitKind::Rtprio => Resource::Rtprio,
        UlimitKind::Rttime => Resource::Rttime,
        UlimitKind::Sigpending => Resource::Sigpending,
        UlimitKind::Stack => Resource::Stack,
    }
}
