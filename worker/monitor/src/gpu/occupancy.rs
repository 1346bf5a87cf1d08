//! Occupancy of GPUs for joins with other time series: gauges by UUID, and the files from which NVIDIA's
//! exporter takes its label `hpc_job`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use muster_model::command::GpuDescription;
use muster_model::ids::{GpuUuid, JobId};
use tokio::sync::watch;

use crate::metrics;

/// The job that holds each GPU, by index.
type Jobs = BTreeMap<u32, Option<JobId>>;

/// State of a GPU as the worker knows it; whether it is schedulable is known to the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GpuState {
    /// Held by no task.
    Free,
    /// Held by a task.
    Held,
    /// Unfit, whether held or not.
    Faulted,
}

impl GpuState {
    /// All states.
    pub(crate) const ALL: [Self; 3] = [Self::Free, Self::Held, Self::Faulted];

    /// Value of the label.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Held => "held",
            Self::Faulted => "faulted",
        }
    }
}

/// Exports the occupancy of this host's GPUs.
pub struct GpuOccupancy {
    gpus: Vec<GpuDescription>,
    jobs: watch::Sender<Jobs>,
}

impl GpuOccupancy {
    /// Nothing is exported yet. With a folder, the jobs are written there, one file per GPU.
    #[must_use]
    pub fn new(gpus: &[GpuDescription], folder: Option<PathBuf>) -> Self {
        let (jobs, newest) = watch::channel(Jobs::new());
        if let Some(folder) = folder {
            tokio::spawn(keep_files(folder, newest));
        }
        Self {
            gpus: gpus.to_vec(),
            jobs,
        }
    }

    /// Exports the current occupancy: the unfit GPUs, and the job that holds each.
    pub fn show(&self, faulted: &BTreeSet<GpuUuid>, holders: &BTreeMap<GpuUuid, JobId>) {
        let mut jobs = Jobs::new();
        for gpu in &self.gpus {
            let job = holders.get(&gpu.uuid).copied();
            let state = match job {
                _ if faulted.contains(&gpu.uuid) => GpuState::Faulted,
                Some(_) => GpuState::Held,
                None => GpuState::Free,
            };
            metrics::gpu_use(gpu, state, job);
            jobs.insert(gpu.index, job);
        }
        metrics::gpus_faulted(faulted.len());
        self.jobs.send_if_modified(|shown| {
            let is_new = *shown != jobs;
            *shown = jobs;
            is_new
        });
    }
}

/// Rewrites the files after every change until the sender is dropped.
async fn keep_files(folder: PathBuf, mut newest: watch::Receiver<Jobs>) {
    while newest.changed().await.is_ok() {
        let jobs = newest.borrow_and_update().clone();
        let place = folder.clone();
        let written = tokio::task::spawn_blocking(move || write_files(&place, &jobs)).await;
        if let Ok(Err(error)) = written {
            let folder = folder.display();
            tracing::warn!(%folder, %error, "writing the job mapping for NVIDIA's exporter failed");
        }
    }
}

/// Writes a file named after the index of each GPU that a job holds, with the job's id; removes those of
/// free GPUs.
fn write_files(folder: &Path, jobs: &Jobs) -> io::Result<()> {
    for (index, job) in jobs {
        let path = folder.join(index.to_string());
        match job {
            Some(job) => std::fs::write(path, format!("{}\n", job.get()))?,
            None => match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            },
        }
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn the_exporter_finds_a_file_for_each_gpu_that_a_job_has() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).ok();
        // Left behind by an agent that did not run when its task ended.
        std::fs::write(folder.path().join("1"), "9\n").unwrap();
        let jobs = Jobs::from([(0, Some(JobId(17))), (1, None)]);
        write_files(folder.path(), &jobs).unwrap();
        assert_eq!((read("0").as_deref(), read("1")), (Some("17\n"), None));
        let jobs = Jobs::from([(0, None), (1, Some(JobId(18)))]);
        write_files(folder.path(), &jobs).unwrap();
        assert_eq!((read("0"), read("1").as_deref()), (None, Some("18\n")));
        let nowhere = folder.path().join("nowhere");
        assert!(write_files(&nowhere, &jobs).is_err());
    }
}
