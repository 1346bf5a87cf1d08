//! Setup of a task's main process between its fork and its first instruction.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{FileType, fchown, fstat};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setrlimit, setsid,
};
use rustix::termios::isatty;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::isolation::account::Credentials;
use crate::isolation::cgroup::Cgroups;
use crate::isolation::shared_memory::Entry;
use crate::process::kernel_limits;
use crate::sys;
use crate::task::spec::{AssignedCpus, TaskSpec};

/// Everything the child needs, opened and counted before the fork: nothing may be allocated after it.
#[derive(Debug)]
pub(crate) struct ChildSetup {
    parent: Pid,
    /// Process lists of its cgroups.
    doors: Vec<Arc<File>>,
    limits: Vec<(Resource, Rlimit)>,
    cpus: Option<CpuSet>,
    /// Bit mask of preferred memory nodes; no preference if empty.
    nodes: Vec<libc::c_ulong>,
    /// Entry to the attempt's shared memory; the host's if `None`.
    shared_memory: Option<Entry>,
    /// Credentials that the process takes on; its parent's if `None`.
    credentials: Option<Credentials>,
}

impl ChildSetup {
    /// Prepares the setup for a task with these cgroups, to be started by `parent`.
    ///
    /// # Errors
    /// What cannot be set up, as a message for the user.
    pub(crate) fn of(spec: &TaskSpec, cgroups: &Cgroups, parent: Pid) -> Result<Self, String> {
        let is_container = spec.assignment.execution.container.is_some();
        let doors = match is_container {
            true => cgroups.inner_join_files(),
            false => cgroups.join_files(),
        };
        // A container's limits are set by its engine.
        let limits = match is_container {
            true => Vec::new(),
            false => kernel_limits::of_task(&spec.assignment.execution.ulimits)?,
        };
        let place = spec.confinement.cpus.as_ref();
        Ok(Self {
            parent,
            doors: doors.map_err(|error| format!("opening the cgroups failed: {error}"))?,
            limits,
            cpus: place.map(cpus),
            nodes: place.map(|place| mask(&place.nodes)).unwrap_or_default(),
            shared_memory: None,
            // The process that runs a container talks to its engine, which gives the container's processes
            // the account.
            credentials: spec
                .identity
                .account
                .as_ref()
                .filter(|_| !is_container)
                .map(Credentials::of),
        })
    }

    /// Setup of a helper process that is not part of the task.
    pub(crate) const fn helper(parent: Pid) -> Self {
        Self {
            parent,
            doors: Vec::new(),
            limits: Vec::new(),
            cpus: None,
            nodes: Vec::new(),
            shared_memory: None,
            credentials: None,
        }
    }

    /// Uses a shared memory namespace other than the host's.
    pub(crate) fn entering(self, shared_memory: Entry) -> Self {
        Self {
            shared_memory: Some(shared_memory),
            ..self
        }
    }

    /// Gives a pipe or terminal that the process gets as input or output to the account, so that it can be
    /// reopened by name (`/dev/stdout`). Other files stay as they are.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub(crate) fn give(&self, file: impl AsFd) -> io::Result<()> {
        let Some(credentials) = &self.credentials else {
            return Ok(());
        };
        let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
        if kind == FileType::Fifo || isatty(&file) {
            fchown(&file, Some(credentials.uid()), None)?;
        }
        Ok(())
    }

    /// Performs the setup, in the child.
    /// The child enters the cgroups by itself before its first instruction, so its children cannot escape
    /// them. The session gives the task a process group that can be killed as a whole; the death signal
    /// ensures that no task outlives its supervisor, which alone holds its lease. Signals that the agent's
    /// starter ignores, as `nohup` does, are not ignored by the task. Root is given up last, if at all:
    /// everything before may need it.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub(crate) fn enter(&self) -> io::Result<()> {
        setsid()?;
        sys::default_signals();
        set_parent_process_death_signal(Some(Signal::KILL))?;
        for door in &self.doors {
            rustix::io::write(door, b"0")?;
        }
        if let Some(entry) = &self.shared_memory {
            entry.enter()?;
        }
        if let Some(cpus) = &self.cpus {
            sched_setaffinity(None, cpus)?;
        }
        if !self.nodes.is_empty() {
            sys::prefer_memory(&self.nodes)?;
        }
        for (resource, limit) in &self.limits {
            setrlimit(*resource, *limit)?;
        }
        if let Some(credentials) = &self.credentials {
            credentials.assume()?;
            // The kernel clears it when a process changes its user.
            set_parent_process_death_signal(Some(Signal::KILL))?;
        }
        // A parent that died before the death signal was set no longer triggers it.
        if getppid() == Some(self.parent) {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
}

fn cpus(place: &AssignedCpus) -> CpuSet {
    let mut set = CpuSet::new();
    // CPUs beyond the capacity of the set are left to the cgroup.
    let known = place
        .cpus
        .iter()
        .filter_map(|cpu| usize::try_from(*cpu).ok());
    for cpu in known.filter(|cpu| *cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    set
}

fn mask(nodes: &[u32]) -> Vec<libc::c_ulong> {
    let bits = libc::c_ulong::BITS;
    let words = nodes.iter().max().map_or(0, |last| last / bits + 1);
    let word = |word| {
        let here = nodes.iter().filter(|node| **node / bits == word);
        here.fold(0, |mask, node| mask | 1 << (node % bits))
    };
    (0..words).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_nodes_are_bits() {
        assert!(mask(&[]).is_empty());
        assert_eq!(mask(&[0, 2]), [0b101]);
        assert_eq!(mask(&[1, 64]), [0b10, 1]);
    }
}
