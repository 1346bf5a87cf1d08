//! Watches cgroups for out-of-memory events while they exist: a container's cgroup is removed when it ends,
//! with its counters.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::io::Errno;

use crate::isolation::cgroup::host::Mounts;
use crate::isolation::cgroup::{count, text_of, write_existing};
use crate::isolation::mount_table;

/// Counters of version 2.
const EVENTS: &str = "memory.events";
/// Counters of version 1, and the file that registers notifications.
const LEGACY_EVENTS: &str = "memory.oom_control";
const LEGACY_ORDERS: &str = "cgroup.event_control";

/// Watches the memory of cgroups.
#[derive(Debug, Default)]
pub(crate) struct MemoryWatch {
    watched: Vec<Watched>,
    has_run_out: bool,
}

/// A watched cgroup.
#[derive(Debug)]
enum Watched {
    /// Version 2: its counters.
    Unified(File),
    /// Version 1: the notification counter and the counters.
    Legacy(OwnedFd, File),
}

impl MemoryWatch {
    /// Starts watching these cgroups. A cgroup that does not count memory or cannot be watched is skipped;
    /// other sources have to suffice then.
    pub(crate) fn add(&mut self, cgroups: &[PathBuf]) {
        let watched = cgroups.iter().filter_map(|path| Watched::of(path).ok());
        self.watched.extend(watched);
    }

    /// Starts watching the cgroup of a process.
    pub(crate) fn add_that_of(&mut self, pid: i32) {
        let mounts = mount_table::own().unwrap_or_default();
        // An ended process has no cgroup to watch.
        let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        self.add(&counted_directories(&Mounts::of(&mounts), &own));
    }

    /// Descriptors to poll.
    pub(crate) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.watched.iter().map(|watched| match watched {
            Watched::Unified(events) => PollFd::new(events, PollFlags::PRI),
            Watched::Legacy(notices, _) => PollFd::new(notices, PollFlags::IN),
        })
    }

    /// Collects pending notifications.
    pub(crate) fn check(&mut self) {
        let mut has_run_out = self.has_run_out;
        self.watched.retain(|watched| {
            let seen = watched.has_run_out();
            has_run_out |= seen == Some(true);
            seen.is_some()
        });
        self.has_run_out = has_run_out;
    }

    /// Whether an out-of-memory event was observed in any of them.
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

    /// `None` once the cgroup is gone.
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
                // The removal of a cgroup notifies once more.
                let is_there = events.read_at(&mut [0u8], 0).is_ok();
                (is_there || u64::from_ne_bytes(counter) > 1).then_some(true)
            }
        }
    }
}

/// Directories that count the memory of a process, by its `/proc` cgroup list.
fn counted_directories(mounts: &Mounts, own: &str) -> Vec<PathBuf> {
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
            counted_directories(&Mounts::of(&mount_table::parse(hybrid.as_bytes())), own),
            [
                PathBuf::from("/sys/fs/cgroup/memory/machine/c1"),
                PathBuf::from("/sys/fs/cgroup/unified/machine/c2")
            ]
        );
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        assert_eq!(
            counted_directories(
                &Mounts::of(&mount_table::parse(unified.as_bytes())),
                "0::/machine.slice/c1\n"
            ),
            [PathBuf::from("/sys/fs/cgroup/machine.slice/c1")]
        );
    }

    #[test]
    fn version_2_reports_out_of_memory_only_if_the_limit_was_reached_and_a_process_killed() {
        let home = tempfile::tempdir().unwrap();
        let events = home.path().join(EVENTS);
        let mut watch = MemoryWatch::default();
        watch.add(&[home.path().to_owned()]);
        assert_eq!(watch.watched.len(), 0);
        fs::write(&events, "max 3\noom 0\noom_kill 1\n").unwrap();
        watch.add(&[home.path().to_owned()]);
        watch.check();
        assert_eq!((watch.has_run_out(), watch.watched.len()), (false, 1));
        fs::write(&events, "max 3\noom 1\noom_kill 1\n").unwrap();
        watch.check();
        assert!(watch.has_run_out());
    }
}
