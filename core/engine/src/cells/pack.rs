//! Bin packing of tasks by GPUs alone.
//!
//! Tasks are packed largest first, each where it leaves the least. If each size divides the next larger one
//! (1, 2, 4, 8, ...), this finds a packing whenever one exists: a bin has room for `free / size` tasks of a
//! size, the number of such places over all bins falls by the same count wherever a larger task is put, and a
//! task fits as long as one is left. For other sizes a search over all packings follows, bounded by
//! [`STATES_MAX`].

use std::collections::BTreeSet;

/// Maximum number of states in one search. Gangs that fit but need a longer search wait.
const STATES_MAX: usize = 20_000;

/// Returns the bin of every task, or `None` if no packing was found. `tasks` are GPUs, largest first; `bins`
/// free GPUs.
pub(super) fn pack(tasks: &[u32], bins: &[u32]) -> Option<Vec<usize>> {
    let needed: u64 = tasks.iter().map(|gpus| u64::from(*gpus)).sum();
    let free: u64 = bins.iter().map(|gpus| u64::from(*gpus)).sum();
    if needed > free {
        return None;
    }
    if let Some(packed) = best_fit(tasks, bins) {
        return Some(packed);
    }
    if divides_downwards(tasks) {
        return None;
    }
    let mut search = Search {
        tasks,
        free: bins.to_vec(),
        packed: Vec::new(),
        hopeless: BTreeSet::new(),
    };
    search.run().then_some(search.packed)
}

/// Whether each size divides the one before it.
pub(super) fn divides_downwards(tasks: &[u32]) -> bool {
    tasks
        .windows(2)
        .all(|pair| pair[1] == 0 || pair[0] % pair[1] == 0)
}

fn best_fit(tasks: &[u32], bins: &[u32]) -> Option<Vec<usize>> {
    let mut by_free: BTreeSet<(u32, usize)> = bins.iter().copied().zip(0..).collect();
    let mut packed = Vec::with_capacity(tasks.len());
    for gpus in tasks {
        let (free, bin) = by_free.range((*gpus, 0)..).next().copied()?;
        by_free.remove(&(free, bin));
        by_free.insert((free - gpus, bin));
        packed.push(bin);
    }
    Some(packed)
}

struct Search<'a> {
    tasks: &'a [u32],
    free: Vec<u32>,
    packed: Vec<usize>,
    /// Dead ends of the search: the next task and the free GPUs, sorted.
    hopeless: BTreeSet<(usize, Vec<u32>)>,
}

impl Search<'_> {
    /// Packs the next task and all after it.
    fn run(&mut self) -> bool {
        let next = self.packed.len();
        let Some(gpus) = self.tasks.get(next).copied() else {
            return true;
        };
        let mut sizes = self.free.clone();
        sizes.sort_unstable();
        let key = (next, sizes);
        if self.hopeless.len() >= STATES_MAX || self.hopeless.contains(&key) {
            return false;
        }
        let mut tried = BTreeSet::new();
        let mut bins: Vec<(u32, usize)> = self.free.iter().copied().zip(0..).collect();
        bins.sort_unstable();
        for (free, bin) in bins {
            // Bins with equal free GPUs are interchangeable.
            if free < gpus || !tried.insert(free) {
                continue;
            }
            self.free[bin] -= gpus;
            self.packed.push(bin);
            if self.run() {
                return true;
            }
            self.packed.pop();
            self.free[bin] += gpus;
        }
        self.hopeless.insert(key);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::pack;

    #[test]
    fn sizes_that_do_not_divide_each_other_are_packed_too() {
        // Largest first, best fit: 5 -> 5, 4 -> 7, 3 -> no bin.
        let packed = pack(&[4, 3, 3], &[6, 4]);
        assert_eq!(packed, Some(vec![1, 0, 0]));
        assert_eq!(pack(&[5, 5, 5], &[9, 9]), None);
        assert_eq!(pack(&[3, 3, 2, 2], &[5, 5]), Some(vec![0, 1, 0, 1]));
        assert_eq!(pack(&[8, 4], &[4, 8]), Some(vec![1, 0]));
    }
}
