//! An insertion-ordered list with cheap clones.

use std::sync::Arc;

use imbl::OrdMap;

/// Items in the order of insertion, oldest first. A clone is cheap, and shares the items.
///
/// A map by insertion number, not `imbl::Vector`: `retain` after `pop_front` corrupts memory in its version
/// 7.0.2.
#[derive(Clone, Debug)]
pub(super) struct OrderedList<T> {
    by_arrival: OrdMap<u64, Arc<T>>,
    next: u64,
}

impl<T> OrderedList<T> {
    /// Number of items.
    pub(super) fn len(&self) -> usize {
        self.by_arrival.len()
    }

    /// All items, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.by_arrival.values().map(Arc::as_ref)
    }

    /// The oldest item.
    pub(super) fn oldest(&self) -> Option<&T> {
        self.by_arrival.get_min().map(|(_, it)| it.as_ref())
    }

    /// Appends an item.
    pub(super) fn push(&mut self, it: T) {
        self.by_arrival.insert(self.next, Arc::new(it));
        self.next += 1;
    }

    /// Drops the oldest item, if any.
    pub(super) fn drop_oldest(&mut self) {
        if let Some(arrival) = self.by_arrival.get_min().map(|(arrival, _)| *arrival) {
            self.by_arrival.remove(&arrival);
        }
    }

    /// Keeps only the items for which `stays` returns true.
    pub(super) fn retain(&mut self, stays: impl Fn(&T) -> bool) {
        let gone: Vec<u64> = self
            .by_arrival
            .iter()
            .filter(|(_, it)| !stays(it))
            .map(|(arrival, _)| *arrival)
            .collect();
        for arrival in gone {
            self.by_arrival.remove(&arrival);
        }
    }
}

impl<T> Default for OrderedList<T> {
    fn default() -> Self {
        Self {
            by_arrival: OrdMap::new(),
            next: 0,
        }
    }
}

/// Compares the current items, independent of dropped ones.
impl<T: PartialEq> PartialEq for OrderedList<T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Eq> Eq for OrderedList<T> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Clones share their common items, and a change of one does not affect the others.
        #[test]
        fn a_clone_is_unaffected_by_later_changes(steps in prop::collection::vec((0u8..6, any::<u8>()), 0..400)) {
            let mut kept: OrderedList<String> = OrderedList::default();
            let mut expected: Vec<String> = Vec::new();
            let mut clones = Vec::new();
            for (step, number) in steps {
                match step {
                    0..3 => {
                        kept.push(format!("number {number}"));
                        expected.push(format!("number {number}"));
                    }
                    3 => {
                        let gone = format!("number {}", number % 16);
                        kept.retain(|it| *it != gone);
                        expected.retain(|it| *it != gone);
                    }
                    4 => {
                        kept.drop_oldest();
                        expected.drain(..expected.len().min(1));
                    }
                    _ => clones.push((kept.clone(), expected.clone())),
                }
                prop_assert_eq!(kept.oldest(), expected.first());
            }
            clones.push((kept, expected));
            for (kept, expected) in clones {
                prop_assert_eq!(kept.len(), expected.len());
                prop_assert!(kept.iter().eq(expected.iter()));
            }
        }
    }
}
