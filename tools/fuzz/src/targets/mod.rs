//! Fuzz targets, one per decoder or family of decoders.

mod backup;
mod command;
mod health_rules;
mod job_file;
mod journal;
mod kernel_log;
mod raft;
mod requests;
mod scenario;
mod settings;
mod snapshot;
mod state;
mod tls;
mod wire;
mod words;

/// A check of one input; it panics if a property is violated.
type Target = fn(&[u8]);

/// Every target with its name.
const TARGETS: [(&str, Target); 15] = [
    ("backup", backup::run),
    ("command", command::run),
    ("health_rules", health_rules::run),
    ("job_file", job_file::run),
    ("journal", journal::run),
    ("kernel_log", kernel_log::run),
    ("raft", raft::run),
    ("requests", requests::run),
    ("scenario", scenario::run),
    ("settings", settings::run),
    ("snapshot", snapshot::run),
    ("state", state::run),
    ("tls", tls::run),
    ("wire", wire::run),
    ("words", words::run),
];

/// Names of all targets.
pub fn names() -> impl Iterator<Item = &'static str> {
    TARGETS.iter().map(|(name, _)| *name)
}

/// Checks one input of a target.
///
/// # Panics
/// If a property of the decoder is violated, or there is no such target.
pub fn check(target: &str, data: &[u8]) {
    let found = TARGETS.iter().find(|(name, _)| *name == target);
    let (_, run) = found.unwrap_or_else(|| panic!("there is no target {target}"));
    run(data);
}
