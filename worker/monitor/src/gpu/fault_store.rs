//! Persistent record of faults that a driver reports only once: a restarted agent must not take the GPU for
//! healthy.

use std::collections::BTreeMap;
use std::path::PathBuf;

use muster_model::command::GpuHealth;
use muster_model::ids::GpuUuid;
use muster_supervisor::files;
use serde::{Deserialize, Serialize};

use crate::gpu::HealthChange;

/// Version of the file.
const FORMAT: u32 = 1;
/// Signals that a backend reports once and cannot report again: XIDs are events, and errors are counted
/// from the backend's start. All others are found again by polling.
const REPORTED_ONCE: [&str; 2] = ["xid-", "ecc-"];

/// The faults of this boot. A reboot resets every GPU, so nothing is kept across it.
#[derive(Debug)]
pub struct FaultStore {
    path: PathBuf,
    boot_id: String,
    faults: BTreeMap<GpuUuid, GpuHealth>,
}

/// Content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    format: u32,
    boot_id: String,
    faults: Vec<HealthChange>,
}

impl FaultStore {
    /// Reads the faults of this boot from the file at `path`. An unreadable file counts as empty: the agent
    /// must start for the sake of its tasks.
    #[must_use]
    pub fn open(path: PathBuf, boot_id: &str) -> Self {
        let record = files::read_json::<Record>(&path).unwrap_or_else(|error| {
            tracing::error!(path = %path.display(), %error, "faults of GPUs cannot be stored");
            None
        });
        let faults = record
            .filter(|record| record.format == FORMAT && record.boot_id == boot_id)
            .map(|record| record.faults.into_iter().collect())
            .unwrap_or_default();
        Self {
            path,
            boot_id: boot_id.to_owned(),
            faults,
        }
    }

    /// The fault of a GPU, if it has one.
    pub(crate) fn fault(&self, gpu: GpuUuid) -> Option<&GpuHealth> {
        self.faults.get(&gpu)
    }

    /// Stores, durably, a fault that will not be reported again; removes it when the GPU recovers.
    pub(crate) fn note(&mut self, (gpu, health): &HealthChange) {
        let changed = match health {
            GpuHealth::Healthy => self.faults.remove(gpu).is_some(),
            GpuHealth::Faulted { signal, .. } => {
                REPORTED_ONCE
                    .iter()
                    .any(|prefix| signal.starts_with(prefix))
                    && self.faults.insert(*gpu, health.clone()).as_ref() != Some(health)
            }
        };
        if !changed {
            return;
        }
        let faults = self.faults.iter();
        let record = Record {
            format: FORMAT,
            boot_id: self.boot_id.clone(),
            faults: faults.map(|(gpu, health)| (*gpu, health.clone())).collect(),
        };
        let written =
            files::json_bytes(&record).and_then(|bytes| files::replace_durably(&self.path, &bytes));
        if let Err(error) = written {
            tracing::error!(%gpu, %error, "storing a GPU fault failed: it will be lost when the agent restarts");
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;
    use crate::gpu::faulted;

    #[test]
    fn faults_reported_once_are_kept_until_they_heal_or_the_host_boots() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("faults");
        let open = |boot_id| FaultStore::open(path.clone(), boot_id);
        let [xid, ecc, lost] = [1, 2, 3].map(GpuUuid);
        let mut memory = open("first");
        memory.note(&(xid, faulted("xid-79", "")));
        memory.note(&(ecc, faulted("ecc-uncorrectable", "")));
        memory.note(&(lost, faulted("gpu-lost", "")));
        let again = open("first");
        assert_eq!(again.fault(xid), Some(&faulted("xid-79", "")));
        assert_eq!(again.fault(ecc), Some(&faulted("ecc-uncorrectable", "")));
        // It is found again by polling.
        assert_eq!(again.fault(lost), None);
        assert_eq!(open("second").fault(xid), None);
        memory.note(&(xid, GpuHealth::Healthy));
        let healed = open("first");
        assert_eq!(
            (healed.fault(xid), healed.fault(ecc).is_some()),
            (None, true)
        );
        std::fs::write(&path, "damaged").unwrap();
        assert_eq!(open("first").fault(ecc), None);
    }
}
