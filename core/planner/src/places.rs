//! Numbers of placement classes, so that a round compares numbers instead of shapes.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use muster_engine::state::Shape;

/// A shape, ignoring the run time of its jobs.
struct ByPlace<'a>(&'a Shape);

impl Ord for ByPlace<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.place_order(other.0)
    }
}

impl PartialOrd for ByPlace<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByPlace<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ByPlace<'_> {}

/// Assigns one number per placement class.
#[derive(Default)]
pub(super) struct Places<'a> {
    known: BTreeMap<ByPlace<'a>, usize>,
}

impl<'a> Places<'a> {
    pub(super) fn number(&mut self, shape: &'a Shape) -> usize {
        let next = self.known.len();
        *self.known.entry(ByPlace(shape)).or_insert(next)
    }
}
