//! Notice of cgroups whose memory limit left the kernel no way out but to kill, while they are there: that of a container goes
//! with its end, and so does what it counted.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::io::Errno;

use crate::mount_table;
use crate::cgroup::host::Mounts;
use crate::cgroup::{count, text_of, write_existing};

/// Version 2's counters.
const EVENTS: &str = "memory.events";
/// Version 1's, and the file by which it takes orders to notify.
const LEGACY_EVENTS: &str = "memory.oom_control";
const LEGACY_ORDERS: &str = "cgroup.event_control";

/// Watches the memory of cgroups.
#[derive(Debug, Default)]
pub(crate) struct MemoryWatch {
    watched: Vec<Watched>,
    has_run_out: bool,
}

/// One of them.
#[derive(Debug)]
enum Watched {
    /// Of version 2: its counters.
    Unified(File),
    /// Of version 1: what counts the notices, and its counters.
    Legacy(OwnedFd, File),
}

impl MemoryWatch {
    /// Watches these from now on. One that counts no memory, or that cannot be watched, is left out: what others say of it is
    /// all there is then.
    pub(crate) fn add(&mut self, cgroups: &[PathBuf]) {
        let watched = { cgroups.iter() }.filter_map(|path| Watched::of(path).ok());
        self.watched.extend(watched);
    }

    /// Watches that of a process from now on.
    pub(crate) fn add_that_of(&mut self, pid: i32) {
        let mounts = mount_table::own().unwrap_or_default();
        // Nothing of a process that has ended.
        let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        self.add(&places(&Mounts::of(&mounts), &own));
    }

    /// What is to be polled for its sake.
    pub(crate) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.watched.iter().map(|watched| match watched {
            Watched::Unified(events) => PollFd::new(events, PollFlags::PRI),
            Watched::Legacy(notices, _) => PollFd::new(notices, PollFlags::IN),
        })
    }

    /// Takes note of what happened meanwhile.
    pub(crate) fn look(&mut self) {
        let mut has_run_out = self.has_run_out;
        self.watched.retain(|watched| {
            let seen = watched.has_run_out();
            has_run_out |= seen == Some(true);
            seen.is_some()
        });
        self.has_run_out = has_run_out;
    }

    /// Whether any of them ran out of memory, as far as that was seen.
    pub(crate) const fn has_run_out(&self) -> bool {
        self.has_run_out
    }
}

impl Watched {
    fn of(cgroup: &Path) -> io::Result<Self> {
        match File::open(cgroup.join(EVENTS)) {
            Ok(events) => return Ok(Self::Unified(events)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let events = File::open(cgroup.join(LEGACY_EVENTS))?;
        let notices = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let order = format!("{} {}", notices.as_raw_fd(), events.as_raw_fd());
        write_existing(&cgroup.join(LEGACY_ORDERS), &order)?;
        Ok(Self::Legacy(notices, events))
    }

    /// None once it is gone.
    fn has_run_out(&self) -> Option<bool> {
        match self {
            Self::Unified(events) => {
                let events = text_of(events).ok()?;
                Some(count(&events, "oom") > 0 && count(&events, "oom_kill") > 0)
            }
            Self::Legacy(notices, events) => {
                let mut counter = [0u8; 8];
                match rustix::io::read(notices, &mut counter) {
                    Ok(_) => {}
                    Err(Errno::AGAIN) => return Some(false),
                    Err(_) => return None,
                }
                // Its removal is one notice more.
                let is_there = events.read_at(&mut [0u8], 0).is_ok();
                (is_there || u64::from_ne_bytes(counter) > 1).then_some(true)
            }
        }
    }
}

/// Where the memory of a process is counted, by its list of cgroups.
fn places(mounts: &Mounts, own: &str) -> Vec<PathBuf> {
    let places = own.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let mount = match controllers {
            "" => mounts.unified.as_ref(),
            _ => {
                let counts = controllers.split(',').any(|it| it == "memory");
                mounts.legacy.get("memory").filter(|_| counts)
            }
        };
        Some(mount?.join(path.trim_start_matches('/')))
    });
    places.collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_process_is_counted_where_its_hierarchy_is_mounted() {
        let hybrid = "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
             cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
             cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n";
        let own = "4:memory:/machine/c1\n3:cpu:/other\n1:name=systemd:/x\n0::/machine/c2\n";
        assert_eq!(
            places(&Mounts::of(&mount_table::parse(hybrid.as_bytes())), own),
            [
                PathBuf::from("/sys/fs/cgroup/memory/machine/c1"),
                PathBuf::from("/sys/fs/cgroup/unified/machine/c2")
            ]
        );
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        assert_eq!(
            places(&Mounts::of(&mount_table::parse(unified.as_bytes())), "0::/machine.slice/c1\n"),
            [PathBuf::from("/sys/fs/cgroup/machine.slice/c1")]
        );
    }

    #[test]
    fn version_2_ran_out_where_its_limit_was_met_and_somebody_killed() {
        let home = tempfile::tempdir().unwrap();
        let events = home.path().join(EVENTS);
        let mut watch = MemoryWatch::default();
        watch.add(&[home.path().to_owned()]);
        assert_eq!(watch.watched.len(), 0);
        fs::write(&events, "max 3\noom 0\noom_kill 1\n").unwrap();
        watch.add(&[home.path().to_owned()]);
        watch.look();
        assert_eq!((watch.has_run_out(), watch.watched.len()), (false, 1));
        fs::write(&events, "max 3\noom 1\noom_kill 1\n").unwrap();
        watch.look();
        assert!(watch.has_run_out());
    }
}
