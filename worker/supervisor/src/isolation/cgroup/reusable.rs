//! Cgroups of an ended task, kept for the next task of the same supervisor: creating a cgroup that counts
//! memory is slow, and removing it is slower.
//! Only version 1 cgroups are kept, because they can be renamed and their counters reset, and only for a task
//! with identical limits: such cgroups are indistinguishable from new ones. If the first task changed, filled
//! or exceeded them, they are removed.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::{fs, io};

use crate::isolation::cgroup::{Cgroups, Limits, PROCESSES, make, text_of};

/// Peak memory charged to a version 1 cgroup.
const PEAK: &str = "memory.max_usage_in_bytes";
/// Freezer state of a version 1 cgroup.
const FREEZER: &str = "freezer.state";

/// Maximum bytes that may remain charged to a reusable cgroup: the kernel's charge cache and cached names.
/// Page cache of files read by the last task is larger, and would be charged to its successor.
const CHARGED_REST_BYTES_MAX: u64 = 1 << 20;
/// Link count of a kernel directory without subdirectories.
const LINKS_OF_LEAF: u64 = 2;

/// Cgroups that still carry the last task's name; removed on drop.
#[derive(Debug)]
pub(crate) struct ReusableCgroups {
    cgroups: Cgroups,
    limits: Limits,
}

impl Cgroups {
    /// Removes the cgroups, or keeps the reusable ones. Call it once no process of the task is alive.
    pub(crate) fn close(self, limits: Limits, may_keep: bool) -> Option<ReusableCgroups> {
        if !may_keep || !self.are_reusable(&limits) {
            self.remove();
            return None;
        }
        // The version 2 cgroup is the cheapest one, and cannot be renamed.
        if let Some(unified) = self.unified_index() {
            Self::at(&self.0[unified..=unified]).remove();
            if self.0[unified].exists() {
                self.remove();
                return None;
            }
            self.1
                .files
                .borrow_mut()
                .retain(|(index, _), _| *index != unified);
        }
        Some(ReusableCgroups {
            cgroups: self,
            limits,
        })
    }

    /// Whether the version 1 cgroups equal new ones with these limits.
    fn are_reusable(&self, limits: &Limits) -> bool {
        let unified = self.unified_index();
        let mut legacy = (0..self.0.len()).filter(|index| Some(*index) != unified);
        limits.are_simple()
            && self.unified_limits_nothing()
            && legacy.clone().next().is_some()
            && legacy.all(|index| self.is_bare(index))
            && self.is_thawed()
            && self.memory_is_free(limits)
    }

    /// Whether a process that enters would run.
    fn is_thawed(&self) -> bool {
        let mut freezers = self.likely(&[FREEZER]).filter(|(_, is_named)| *is_named);
        freezers.all(|(index, _)| {
            let state = self.file(index, FREEZER).and_then(|file| text_of(&file));
            state.is_ok_and(|state| state.trim() == "THAWED")
        })
    }

    /// Whether a cgroup has no processes and no children.
    fn is_bare(&self, index: usize) -> bool {
        let list = self.file(index, PROCESSES).and_then(|file| text_of(&file));
        let metadata = self.0[index].metadata();
        list.is_ok_and(|list| list.is_empty())
            && metadata.is_ok_and(|metadata| metadata.nlink() == LINKS_OF_LEAF)
    }

    /// Whether version 2 takes no part in the limits, or is absent.
    fn unified_limits_nothing(&self) -> bool {
        let is_bare = || {
            self.unified().is_none_or(|path| {
                fs::read_to_string(path.join("cgroup.controllers"))
                    .is_ok_and(|list| list.trim().is_empty())
            })
        };
        *self.1.is_unified_bare.get_or_init(is_bare)
    }

    /// Resets the memory peak counter.
    fn reset_peak(&self, limits: &Limits) -> io::Result<()> {
        if limits.memory_bytes().is_none() {
            return Ok(());
        }
        let mut all = self
            .likely(&[PEAK])
            .filter_map(|(index, _)| self.file(index, PEAK).ok());
        let peak = all.next().ok_or(io::ErrorKind::NotFound)?;
        peak.write_all_at(b"0", 0)
    }

    fn memory_is_free(&self, limits: &Limits) -> bool {
        let Some(bytes) = limits.memory_bytes() else {
            return true;
        };
        let used = self
            .read(&["memory.usage_in_bytes"])
            .and_then(|text| text.trim().parse::<u64>().ok());
        let limit = self.memory().map(|memory| memory.limit_bytes);
        used.is_some_and(|used| used <= CHARGED_REST_BYTES_MAX)
            && limit == Some(bytes)
            && self.memory_shortage().is_none()
    }
}

impl ReusableCgroups {
    /// Passes the cgroups to the next task under its names; if it needs different ones, removes them and
    /// returns `None`.
    pub(crate) fn reuse(mut self, paths: &[PathBuf], limits: &Limits) -> Option<Cgroups> {
        let old = &self.cgroups.0;
        let is_same_place = |(old, new): (&PathBuf, &PathBuf)| old.parent() == new.parent();
        let are_same_places = old.len() == paths.len() && old.iter().zip(paths).all(is_same_place);
        if !are_same_places || self.limits != *limits {
            return None;
        }
        let unified = self.cgroups.unified_index();
        let mut all = old.iter().zip(paths).enumerate();
        let renamed = all.try_for_each(|(index, (old, new))| match unified == Some(index) {
            true => make(new),
            false => fs::rename(old, new),
        });
        let next = Cgroups(paths.to_vec(), std::mem::take(&mut self.cgroups.1));
        let reset = renamed.and_then(|()| next.reset_peak(limits));
        if reset.is_err() {
            next.remove();
            return None;
        }
        self.cgroups.0.clear();
        Some(next)
    }
}

impl Drop for ReusableCgroups {
    fn drop(&mut self) {
        self.cgroups.remove();
    }
}
