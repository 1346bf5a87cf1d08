//! Detection of GPU processes that belong to no task.
//!
//! Processes of a task carry its environment variables or descend from a process that does; active checks
//! descend from the agent. All other compute processes use a GPU without an allocation.

use std::path::{Path, PathBuf};

use muster_supervisor::process::CONTROL_VARIABLE;

/// Inode of the kernel's initial PID namespace (`PROC_PID_INIT_INO`), whose process ids the driver reports.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";
/// Maximum number of ancestors examined: longer than any realistic chain of programs.
const ANCESTORS_MAX: usize = 64;

/// Distinguishes foreign processes from those of tasks.
#[derive(Debug)]
pub(super) struct ForeignProcesses {
    proc: PathBuf,
    /// Process id of the agent.
    own: u32,
}

impl ForeignProcesses {
    /// None if process ids differ from the host's: processes cannot be identified there.
    pub(super) fn of_this_host(host_root: &Path) -> Option<Self> {
        let own = std::fs::read_link("/proc/self/ns/pid").ok()?;
        let is_hosts = own.as_os_str() == FIRST_NAMESPACE && host_root == Path::new("/");
        is_hosts.then(|| Self::below("/proc".into(), std::process::id()))
    }

    const fn below(proc: PathBuf, own: u32) -> Self {
        Self { proc, own }
    }

    /// Number of these processes that belong to no task.
    pub(super) fn count(&self, processes: &[u32]) -> i64 {
        let foreign = processes.iter().filter(|pid| self.is_foreign(**pid));
        i64::try_from(foreign.count()).unwrap_or(i64::MAX)
    }

    /// Whether a process is foreign; one that ended meanwhile is not.
    fn is_foreign(&self, pid: u32) -> bool {
        let mut next = Some(pid).filter(|pid| self.of(*pid).exists());
        if next.is_none() {
            return false;
        }
        for _ in 0..ANCESTORS_MAX {
            let Some(pid) = next.filter(|pid| *pid > 1) else {
                return true;
            };
            if pid == self.own || self.is_tasks(pid) {
                return false;
            }
            next = self.parent(pid);
        }
        true
    }

    /// Whether a process carries a task's variables. One that the agent may not inspect was not started by
    /// it.
    fn is_tasks(&self, pid: u32) -> bool {
        let environment = std::fs::read(self.of(pid).join("environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|variable| {
            let rest = variable.strip_prefix(CONTROL_VARIABLE.as_bytes());
            rest.is_some_and(|rest| rest.starts_with(b"="))
        })
    }

    fn parent(&self, pid: u32) -> Option<u32> {
        let stat = std::fs::read_to_string(self.of(pid).join("stat")).ok()?;
        // The name may contain any character, so the following fields are located from its last
        // parenthesis.
        let (_, fields) = stat.rsplit_once(')')?;
        fields.split_whitespace().nth(1)?.parse().ok()
    }

    fn of(&self, pid: u32) -> PathBuf {
        self.proc.join(pid.to_string())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn processes_of_tasks_and_the_agent_are_not_foreign() {
        let proc = tempfile::tempdir().unwrap();
        let process = |pid: u32, parent: u32, environment: &str| {
            let folder = proc.path().join(pid.to_string());
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("environ"), environment).unwrap();
            let stat = format!("{pid} (a ) b) S {parent} {pid} {pid} 0");
            std::fs::write(folder.join("stat"), stat).unwrap();
        };
        let foreign = ForeignProcesses::below(proc.path().to_owned(), 10);
        process(1, 0, "MUSTER_CTL_DIR=/odd\0");
        process(10, 1, "");
        // A task, a child that it started with an empty environment, and a check of the agent.
        process(20, 1, "HOME=/\0MUSTER_CTL_DIR=/run/muster/1-0-7\0");
        process(21, 20, "");
        process(22, 21, "PATH=/bin\0");
        process(30, 10, "");
        assert_eq!(foreign.count(&[20, 21, 22, 30]), 0);
        // Foreign processes, with a similar variable; one of them has ended.
        process(40, 1, "MUSTER_CTL_DIRECTORY=/x\0");
        process(41, 40, "");
        assert_eq!(foreign.count(&[20, 40, 41, 99]), 2);
    }

    #[test]
    fn processes_that_go_round_in_circles_end_the_search() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, parent) in [(5u32, 6u32), (6, 5)] {
            let folder = proc.path().join(pid.to_string());
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("stat"), format!("{pid} (x) S {parent}")).unwrap();
        }
        let foreign = ForeignProcesses::below(proc.path().to_owned(), 10);
        assert_eq!(foreign.count(&[5]), 1);
    }
}
