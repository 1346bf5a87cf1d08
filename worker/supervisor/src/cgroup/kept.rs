//! The cgroups of an ended task, for the next one of the same supervisor: the kernel takes long to make one that counts memory,
//! and longer to be rid of it.
//!
//! Only those of version 1, which can be renamed and whose counter can be set back, and only for a task with the very same
//! limits: such cgroups cannot be told from new ones. Where the first task changed, filled or overran them, they are removed.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::{fs, io};

use crate::cgroup::{Cgroups, Limits, PROCESSES, make, text_of};

/// The most memory that was charged to a cgroup of version 1 at a time.
const PEAK: &str = "memory.max_usage_in_bytes";
/// Whether a cgroup of version 1 lets its processes run.
const FREEZER: &str = "freezer.state";

/// Bytes that may still be charged to a cgroup: what the kernel keeps for the next charge, and names it remembers. Files that
/// the last task has read are more, and would be its successor's.
const CHARGED_REST_BYTES_MAX: u64 = 1 << 20;
/// Links of a directory of the kernel's with none below it.
const LINKS_OF_LEAF: u64 = 2;

/// They still have the last task's name. Dropped, they are removed.
#[derive(Debug)]
pub(crate) struct KeptCgroups {
    cgroups: Cgroups,
    limits: Limits,
}

impl Cgroups {
    /// Removes them, or keeps those that can be used again. Call it when nothing of the task lives.
    pub(crate) fn close(self, limits: Limits, may_keep: bool) -> Option<KeptCgroups> {
        if !may_keep || !self.are_reusable(&limits) {
            self.remove();
            return None;
        }
        // Version 2's is the cheapest of them, and keeps its name.
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
        Some(KeptCgroups {
            cgroups: self,
            limits,
        })
    }

    /// Whether those of version 1 are as a new task with these limits would get them.
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

    /// Whether a process that came in would run.
    fn is_thawed(&self) -> bool {
        let mut freezers = self.likely(&[FREEZER]).filter(|(_, is_named)| *is_named);
        freezers.all(|(index, _)| {
            let state = self.file(index, FREEZER).and_then(|file| text_of(&file));
            state.is_ok_and(|state| state.trim() == "THAWED")
        })
    }

    /// Whether nobody is in one of them, and nothing below it.
    fn is_bare(&self, index: usize) -> bool {
        let list = self.file(index, PROCESSES).and_then(|file| text_of(&file));
        let metadata = self.0[index].metadata();
        list.is_ok_and(|list| list.is_empty())
            && metadata.is_ok_and(|metadata| metadata.nlink() == LINKS_OF_LEAF)
    }

    /// Whether version 2 has no part in the limits, or is not there.
    fn unified_limits_nothing(&self) -> bool {
        let is_bare = || {
            self.unified().is_none_or(|path| {
                fs::read_to_string(path.join("cgroup.controllers"))
                    .is_ok_and(|list| list.trim().is_empty())
            })
        };
        *self.1.is_unified_bare.get_or_init(is_bare)
    }

    /// Forgets how much memory the last task took.
    fn count_anew(&self, limits: &Limits) -> io::Result<()> {
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
        let used = self.read(&["memory.usage_in_bytes"]);
        let used = used.and_then(|text| text.trim().parse::<u64>().ok());
        let limit = self.memory().map(|memory| memory.limit_bytes);
        used.is_some_and(|used| used <= CHARGED_REST_BYTES_MAX)
            && limit == Some(bytes)
            && self.memory_shortage().is_none()
    }
}

impl KeptCgroups {
    /// Gives them to the next task, under its names; none if it needs others: then these are removed.
    pub(crate) fn pass_on(mut self, paths: &[PathBuf], limits: &Limits) -> Option<Cgroups> {
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
        let counts_anew = renamed.and_then(|()| next.count_anew(limits));
        if counts_anew.is_err() {
            next.remove();
            return None;
        }
        self.cgroups.0.clear();
        Some(next)
    }
}

impl Drop for KeptCgroups {
    fn drop(&mut self) {
        self.cgroups.remove();
    }
}
