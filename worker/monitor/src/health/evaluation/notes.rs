//! Health state for the next agent: read position of the kernel's log, known faults, and findings that the
//! leader has not acknowledged.

use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_health::kernel_log::Cursor;
use muster_model::health::{Component, Finding, Severity};
use muster_model::ids::{GpuUuid, Revision};
use muster_supervisor::files;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Version of the file.
const FORMAT: u32 = 1;
/// Pause between writes, so that a flood of log lines does not wear out the disk.
const PAUSE: Duration = Duration::from_secs(1);

/// The stored state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Notes {
    /// Version.
    pub(crate) format: u32,
    /// The boot of the signals: a reboot resets every GPU.
    pub(crate) boot_id: String,
    /// Read position of the kernel's log.
    pub(crate) cursor: Cursor,
    /// Unacknowledged findings, oldest first.
    pub(crate) unacknowledged: Vec<Finding>,
    /// Components that are not healthy, by rule.
    pub(crate) severities: Vec<(String, Component, Severity)>,
    /// Last signal of the backend for each faulty GPU.
    pub(crate) signals: Vec<(GpuUuid, String)>,
    /// Recovery of the cluster after which all findings were last reported again; 0 if there was none.
    pub(crate) recovered_at: Revision,
    /// Whether the host was rebooted since they were written: the leader may have cleared findings
    /// meanwhile.
    #[serde(skip)]
    pub(crate) are_of_another_boot: bool,
}

impl Notes {
    /// Reads the notes. An unreadable file counts as empty: the agent must start for the sake of its tasks.
    pub(crate) fn read(path: &Path, boot_id: &str) -> Self {
        let read = files::read_json::<Self>(path).unwrap_or_else(|error| {
            tracing::error!(path = %path.display(), %error,
                "reading the health notes failed: earlier findings are lost");
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

/// Writes the newest notes durably after each change, until the sender is dropped.
pub(crate) async fn write(path: PathBuf, mut newest: watch::Receiver<Notes>) {
    while newest.changed().await.is_ok() {
        let notes = newest.borrow_and_update().clone();
        let path = path.clone();
        let written = tokio::task::spawn_blocking(move || {
            let bytes = files::json_bytes(&notes)?;
            files::replace_durably(&path, &bytes)
        });
        if let Ok(Err(error)) = written.await {
            tracing::error!(%error, "writing the health notes failed: findings may be repeated after a restart");
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
