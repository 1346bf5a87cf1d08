//! What a task's main process does between its fork and its first instruction.

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

use crate::account::Credentials;
use crate::cgroup::Cgroups;
use crate::kernel_limits;
use crate::shared_memory::Entry;
use crate::spec::{CpuPlace, TaskSpec};
use crate::sys;

/// All that it needs, opened and counted before the fork: after it nothing may be allocated.
#[derive(Debug)]
pub(crate) struct ChildSetup {
    parent: Pid,
    /// The lists of processes of its cgroups.
    doors: Vec<Arc<File>>,
    limits: Vec<(Resource, Rlimit)>,
    cpus: Option<CpuSet>,
    /// Bits of the memory nodes that its memory comes from first; any if there are none.
    nodes: Vec<libc::c_ulong>,
    /// The way to its attempt's shared memory; it stays in the host's if none.
    shared_memory: Option<Entry>,
    /// Whose process it becomes; it stays its parent's if none.
    credentials: Option<Credentials>,
}

impl ChildSetup {
    /// For a task with these cgroups, to be started by `parent`.
    ///
    /// # Errors
    /// What cannot be set up, in words for the user.
    pub(crate) fn of(spec: &TaskSpec, cgroups: &Cgroups, parent: Pid) -> Result<Self, String> {
        let is_container = spec.assignment.execution.container.is_some();
        let doors = match is_container {
            true => cgroups.inner_doors(),
            false => cgroups.doors(),
        };
        // A container's limits are for its engine to set.
        let limits = match is_container {
            true => Vec::new(),
            false => kernel_limits::of_task(&spec.assignment.execution.ulimits)?,
        };
        let place = spec.confinement.cpus.as_ref();
        Ok(Self {
            parent,
            doors: doors.map_err(|error| format!("opening its cgroups failed: {error}"))?,
            limits,
            cpus: place.map(cpus),
            nodes: place.map(|place| mask(&place.nodes)).unwrap_or_default(),
            shared_memory: None,
            // Who runs a container speaks with its engine, which makes the container's processes the account's.
            credentials: { spec.identity.account.as_ref() }
                .filter(|_| !is_container)
                .map(Credentials::of),
        })
    }

    /// For a process that helps to supervise a task and is none of it.
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

    /// The same with shared memory that is not the host's.
    pub(crate) fn entering(self, shared_memory: Entry) -> Self {
        Self {
            shared_memory: Some(shared_memory),
            ..self
        }
    }

    /// Makes a file that its process is to have as input or output the account's, so that it can be opened again by its name
    /// (`/dev/stdout`): pipes and terminals. Others stay as they are.
    ///
    /// # Errors
    /// What the kernel says.
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

    /// Does it, in the child.
    ///
    /// It enters the cgroups by itself before its first instruction: what it starts cannot escape them. The session gives
    /// the task a process group that can be killed whole; the death signal ensures that no task outlives its supervisor,
    /// which alone holds its lease. A signal that whoever started the agent ignores, as `nohup` does, is not ignored by
    /// the task. Last of all it ceases to be root, if it is to: all before may need that.
    ///
    /// # Errors
    /// What the kernel says.
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
            // The kernel forgets it when a process changes its user.
            set_parent_process_death_signal(Some(Signal::KILL))?;
        }
        // A parent that died before the death signal was set sends none any more.
        if getppid() == Some(self.parent) {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
}

fn cpus(place: &CpuPlace) -> CpuSet {
    let mut set = CpuSet::new();
    // What the set has no room for is left to the cgroup.
    let known = { place.cpus.iter() }.filter_map(|cpu| usize::try_from(*cpu).ok());
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
