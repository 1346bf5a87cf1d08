//! What the agent's successor must know of health: up to where the kernel's log was read, what is known, and what the state
//! has not heard.

use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_health::kernel_log::Cursor;
use muster_model::health::{Component, Finding, Severity};
use muster_model::ids::GpuUuid;
use muster_supervisor::files;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Version of the file.
const FORMAT: u32 = 1;
/// Between two writes: a flood of lines must not wear the disk out.
const PAUSE: Duration = Duration::from_secs(1);

/// What is written down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Notes {
    /// Version.
    pub(super) format: u32,
    /// The boot that signals belong to: another one has reset every GPU.
    pub(super) boot_id: String,
    /// Up to where the kernel's log was read.
    pub(super) cursor: Cursor,
    /// What the state has not acknowledged, oldest first.
    pub(super) waiting: Vec<Finding>,
    /// What is not well, by which rule.
    pub(super) standing: Vec<(String, Component, Severity)>,
    /// What the backend last said of each GPU that is not well.
    pub(super) signals: Vec<(GpuUuid, String)>,
    /// Whether the host has booted since they were written: what stands may be forgiven by now.
    #[serde(skip)]
    pub(super) are_of_another_boot: bool,
}

impl Notes {
    /// Reads them. Those that cannot be read say nothing: the agent's tasks need it more than its memory.
    pub(super) fn read(path: &Path, boot_id: &str) -> Self {
        let read = files::read_json::<Self>(path).unwrap_or_else(|error| {
            tracing::error!(path = %path.display(), %error, "what was found of this host's health is forgotten");
            None
        });
        let mut notes = read
            .filter(|notes| notes.format == FORMAT)
            .unwrap_or_default();
        if notes.boot_id != boot_id {
            notes.signals.clear();
            notes.are_of_another_boot = true;
        }
        notes.format = FORMAT;
        boot_id.clone_into(&mut notes.boot_id);
        notes
    }
}

/// Writes the newest notes, durably, again and again until nobody makes any.
pub(super) async fn write(path: PathBuf, mut newest: watch::Receiver<Notes>) {
    while newest.changed().await.is_ok() {
        let notes = newest.borrow_and_update().clone();
        let path = path.clone();
        let written = tokio::task::spawn_blocking(move || {
            let bytes = files::json_bytes(&notes)?;
            files::replace_durably(&path, &bytes)
        });
        if let Ok(Err(error)) = written.await {
            tracing::error!(%error, "what was found of this host's health may be told again");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn a_boot_ends_signals_and_damage_ends_all() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("health.json");
        let mut notes = Notes::read(&path, "first");
        assert_eq!(notes.signals, vec![]);
        notes.are_of_another_boot = false;
        notes.signals = vec![(GpuUuid(1), "xid-79".to_owned())];
        notes.cursor.accept("first", 7);
        std::fs::write(&path, files::json_bytes(&notes).unwrap()).unwrap();
        assert_eq!(Notes::read(&path, "first"), notes);
        let rebooted = Notes::read(&path, "second");
        assert!(rebooted.are_of_another_boot);
        assert_eq!((rebooted.signals, rebooted.cursor), (vec![], notes.cursor));
        std::fs::write(&path, "damaged").unwrap();
        assert_eq!(Notes::read(&path, "first").cursor, Cursor::default());
    }
}
