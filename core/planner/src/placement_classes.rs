//! Numbering of placement classes, so that a round compares numbers instead of whole requests.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use muster_engine::state::PlacementClass;

/// A shape, ignoring the run time of its jobs.
struct PlacementKey<'a>(&'a PlacementClass);

impl Ord for PlacementKey<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.place_order(other.0)
    }
}

impl PartialOrd for PlacementKey<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PlacementKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PlacementKey<'_> {}

/// Assigns one number per placement class.
#[derive(Default)]
pub(super) struct PlacementClasses<'a> {
    known: BTreeMap<PlacementKey<'a>, usize>,
}

impl<'a> PlacementClasses<'a> {
    pub(super) fn number(&mut self, shape: &'a PlacementClass) -> usize {
        let next = self.known.len();
        *self.known.entry(PlacementKey(shape)).or_insert(next)
    }
}
