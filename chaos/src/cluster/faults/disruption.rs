//! The fault driver: disrupts one part of a local cluster, and repairs it.

use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Signal, kill_process};

use crate::cluster::faults::small_disk::SmallDisk;
use crate::cluster::{
    ClusterError, Direction, LocalCluster, Member, Network, failed, kill_all, processes_of,
};

/// Rounds in which the processes of a host get a signal: one may have forked meanwhile.
const SIGNAL_ROUNDS: usize = 3;

/// A part of a local cluster, by its position among the replicas or among the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A replica.
    Replica(usize),
    /// The agent of a host, without supervisors and tasks.
    Agent(usize),
    /// A host with all its processes: agent, supervisors and tasks.
    Host(usize),
}

/// A disruption of one part of a cluster, until it is repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disruption {
    /// Its processes are killed (`kill -9`). Repair starts the replica or the agent on its existing data.
    Killed(Part),
    /// Its processes are frozen (SIGSTOP). Repair resumes them.
    Frozen(Part),
    /// The packets of its machine are lost, including those to clients.
    Cut(Part, Direction),
    /// A replica is cut off from the other replicas and from the workers, but not from clients.
    Isolated(usize),
    /// The small disk at this folder is full, see [`LocalCluster::mount_small_disk`].
    DiskFull(PathBuf),
}

impl LocalCluster {
    /// Injects a disruption.
    ///
    /// # Errors
    /// If the kernel refuses, or the cluster lacks what it needs: a network that can be cut, or a small disk.
    pub fn inject(&mut self, disruption: &Disruption) -> Result<(), ClusterError> {
        match disruption {
            Disruption::Killed(part) => self.kill(*part),
            Disruption::Frozen(part) => self.signal(*part, Signal::STOP),
            Disruption::Cut(part, direction) => {
                let host = self.member_of(*part).host;
                Ok(self.own_network()?.cut(host, *direction)?)
            }
            Disruption::Isolated(replica) => {
                let (network, host) = (self.own_network()?, self.replicas[*replica].host);
                for other in self.hosts().filter(|other| *other != host) {
                    network.partition(host, other)?;
                }
                Ok(())
            }
            Disruption::DiskFull(folder) => self.disk_at(folder)?.fill(),
        }
    }

    /// Repairs an injected disruption.
    ///
    /// # Errors
    /// As [`LocalCluster::inject`], or if a program cannot be started.
    pub fn repair(&mut self, disruption: &Disruption) -> Result<(), ClusterError> {
        match disruption {
            Disruption::Killed(part) => self.restart(*part),
            Disruption::Frozen(part) => self.signal(*part, Signal::CONT),
            Disruption::Cut(part, direction) => {
                let host = self.member_of(*part).host;
                Ok(self.own_network()?.heal(host, *direction)?)
            }
            Disruption::Isolated(replica) => {
                let (network, host) = (self.own_network()?, self.replicas[*replica].host);
                for other in self.hosts().filter(|other| *other != host) {
                    network.reconnect(host, other)?;
                }
                Ok(())
            }
            Disruption::DiskFull(folder) => self.disk_at(folder)?.free_space(),
        }
    }

    /// Describes a disruption, for a timeline.
    #[must_use]
    pub fn describe(&self, disruption: &Disruption) -> String {
        match disruption {
            Disruption::Killed(part) => format!("kill -9 of {}", self.name_of(*part)),
            Disruption::Frozen(part) => format!("{} is frozen", self.name_of(*part)),
            Disruption::Cut(part, direction) => {
                let name = &self.member_of(*part).name;
                match direction {
                    Direction::Both => format!("{name} is cut off, both ways"),
                    Direction::Out => format!("packets from {name} are lost"),
                    Direction::In => format!("packets to {name} are lost"),
                }
            }
            Disruption::Isolated(replica) => {
                let name = &self.replicas[*replica].name;
                format!("{name} is cut off, but not from clients")
            }
            Disruption::DiskFull(folder) => format!("the disk at {} is full", folder.display()),
        }
    }

    /// Mounts a small disk over a folder, which can be filled without side effects; the folder's contents are
    /// copied into it. Needs a private mount namespace.
    ///
    /// # Errors
    /// If it cannot be mounted or filled with the contents.
    pub fn mount_small_disk(&mut self, folder: &Path, size_mib: u64) -> Result<(), ClusterError> {
        self.disks.push(SmallDisk::mount(folder, size_mib)?);
        Ok(())
    }

    /// Copies the contents of the small disks to neighbouring folders, since they disappear with the disks.
    ///
    /// # Errors
    /// If a disk cannot be copied.
    pub fn keep_disks(&self) -> Result<(), ClusterError> {
        self.disks.iter().try_for_each(SmallDisk::copy_beside)
    }

    /// The position of a worker.
    #[must_use]
    pub fn worker_named(&self, name: &str) -> Option<usize> {
        self.workers.iter().position(|worker| worker.name == name)
    }

    fn kill(&mut self, part: Part) -> Result<(), ClusterError> {
        match part {
            Part::Replica(index) => self.replicas[index].kill(),
            Part::Agent(index) => self.workers[index].kill(),
            Part::Host(index) => {
                self.workers[index].kill()?;
                kill_all(&self.workers[index].folder)?;
                Ok(())
            }
        }
    }

    fn restart(&mut self, part: Part) -> Result<(), ClusterError> {
        match part {
            Part::Replica(index) => self.start_replica(index),
            Part::Agent(index) | Part::Host(index) => {
                let program = self.options.program_of_workers();
                self.workers[index].start(program, self.network.as_ref())
            }
        }
    }

    fn signal(&self, part: Part, signal: Signal) -> Result<(), ClusterError> {
        let member = self.member_of(part);
        if !matches!(part, Part::Host(_)) {
            return member.signal(signal);
        }
        for _ in 0..SIGNAL_ROUNDS {
            for process in processes_of(&member.folder) {
                // A process that has ended meanwhile needs no signal.
                let _gone = kill_process(process, signal);
            }
        }
        Ok(())
    }

    fn member_of(&self, part: Part) -> &Member {
        match part {
            Part::Replica(index) => &self.replicas[index],
            Part::Agent(index) | Part::Host(index) => &self.workers[index],
        }
    }

    fn name_of(&self, part: Part) -> String {
        let name = &self.member_of(part).name;
        match part {
            Part::Agent(_) => format!("the agent of {name}"),
            Part::Replica(_) | Part::Host(_) => name.clone(),
        }
    }

    /// Numbers of all hosts in the cluster's network.
    fn hosts(&self) -> impl Iterator<Item = usize> + '_ {
        let members = self.replicas.iter().chain(&self.workers);
        members.map(|member| member.host)
    }

    fn own_network(&self) -> Result<&Network, ClusterError> {
        let none = || io::Error::other("hosts have no network (set `ClusterOptions::network`)");
        let network = self.network.as_ref();
        network.ok_or_else(|| failed("cutting a host off")(none()))
    }

    fn disk_at(&self, folder: &Path) -> Result<&SmallDisk, ClusterError> {
        let none = || io::Error::other("no small disk is mounted there");
        let found = self.disks.iter().find(|disk| disk.path() == folder);
        found.ok_or_else(|| failed(format!("filling {}", folder.display()))(none()))
    }
}
