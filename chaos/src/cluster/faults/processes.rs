//! Faults of single processes and of data on a local cluster.

use std::path::Path;
use std::{fs, io};

use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::{ClusterError, LocalCluster, failed, processes_of};

/// Name of the neighbouring folder with the data that a replica lost.
const ASIDE: &str = "data-aside";

impl LocalCluster {
    /// Kills the supervisor of the task on a host whose environment has all these variables, as `NAME=VALUE`.
    ///
    /// # Errors
    /// If there is no such task, or the kernel refuses.
    pub fn kill_supervisor(&self, worker: usize, variables: &[String]) -> Result<(), ClusterError> {
        let folder = &self.workers[worker].folder;
        let task = processes_of(folder)
            .into_iter()
            .find(|process| has_variables(*process, variables))
            .ok_or_else(|| io::Error::other("the task has no process"));
        let killed = task
            .and_then(parent_of)
            .and_then(|supervisor| Ok(kill_process(supervisor, Signal::KILL)?));
        killed.map_err(failed("killing a supervisor"))
    }

    /// Takes the data of a stopped replica away; it is kept in a neighbouring folder for inspection.
    ///
    /// # Errors
    /// If it cannot be moved.
    pub fn wipe_replica(&self, index: usize) -> Result<(), ClusterError> {
        let member = &self.replicas[index];
        let data = member.data();
        let moved = fs::rename(&data, member.folder.join(ASIDE));
        moved.map_err(failed(format!("moving {}", data.display())))
    }
}

/// Flips a bit in the middle of a file.
///
/// # Errors
/// If the file is empty, or cannot be read or written.
pub fn flip_bit(file: &Path) -> Result<(), ClusterError> {
    let flipped = || -> io::Result<()> {
        let mut bytes = fs::read(file)?;
        let middle = bytes.len() / 2;
        let byte = bytes.get_mut(middle);
        *byte.ok_or_else(|| io::Error::other("it is empty"))? ^= 1;
        fs::write(file, bytes)
    };
    flipped().map_err(failed(format!("damaging {}", file.display())))
}

fn has_variables(process: Pid, variables: &[String]) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", process.as_raw_nonzero()));
    let environment = environment.unwrap_or_default();
    let present: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
    let mut variables = variables.iter();
    variables.all(|variable| present.contains(&variable.as_bytes()))
}

fn parent_of(process: Pid) -> io::Result<Pid> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()))?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    let parent = parent.and_then(|text| Pid::from_raw(text.trim().parse().ok()?));
    parent.ok_or_else(|| io::Error::other("the process has no parent"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn one_bit_of_a_file_is_flipped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state");
        fs::write(&file, [4, 4, 4]).unwrap();
        flip_bit(&file).unwrap();
        assert_eq!(fs::read(&file).unwrap(), [4, 5, 4]);
        fs::write(&file, "").unwrap();
        assert!(flip_bit(&file).is_err());
    }
}
