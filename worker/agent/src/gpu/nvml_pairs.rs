//! Which GPUs of a host reach which by NVLink.
//!
//! Not all that a host has are linked with each other, and the driver does not say which should be: a pair counts from the first
//! look on at which it was linked.

use std::collections::BTreeSet;

use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus};
use nvml_wrapper::{Device, Nvml};

use crate::gpu::nvml_sensors::count;
use crate::gpu::sensors::GpuReadings;

/// The rule about pairs, and its metrics: those that are linked, and those that were and are not.
pub(crate) const PAIRS_RULE: &str = "p2p";
pub(crate) const GOOD_PAIRS: &str = "pairs_good";
pub(crate) const BAD_PAIRS: &str = "pairs_bad";

/// The pairs that were once linked, by their indices, the lower one first.
#[derive(Debug, Default)]
pub(super) struct Pairs(BTreeSet<(u32, u32)>);

impl Pairs {
    pub(super) const fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Reads the pairs of a GPU with all that come behind it.
    pub(super) fn read(
        &mut self,
        (nvml, device): (&'static Nvml, &Device<'static>),
        index: u32,
        readings: &mut GpuReadings,
    ) {
        let gpus = nvml.device_count().unwrap_or_default();
        let told = (index + 1..gpus).filter_map(|other| {
            let peer = nvml.device_by_index(other).ok()?;
            let status = device.p2p_status(&peer, P2pCapabilitiesIndex::NvLink);
            Some((other, status.ok()? == P2pStatus::Ok))
        });
        let told: Vec<(u32, bool)> = told.collect();
        if let Some((good, bad)) = self.judge(index, &told) {
            readings.sample(PAIRS_RULE, &[(GOOD_PAIRS, good), (BAD_PAIRS, bad)]);
        }
    }

    /// Pairs that are linked, and that were and are not; none if nothing is known of any that ever was.
    fn judge(&mut self, index: u32, told: &[(u32, bool)]) -> Option<(i64, i64)> {
        let linked = told.iter().filter(|(_, is_linked)| *is_linked);
        self.0.extend(linked.map(|(other, _)| (index, *other)));
        let count_of = |wanted: bool| {
            let pairs = told.iter().filter(|(other, is_linked)| {
                *is_linked == wanted && self.0.contains(&(index, *other))
            });
            count(pairs.count())
        };
        let (good, bad) = (count_of(true), count_of(false));
        (good + bad > 0).then_some((good, bad))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_counts_once_it_was_linked() {
        let mut pairs = Pairs::new();
        assert_eq!(pairs.judge(0, &[(1, false), (2, false)]), None);
        assert_eq!(pairs.judge(0, &[(1, true), (2, false)]), Some((1, 0)));
        assert_eq!(pairs.judge(0, &[(1, false), (2, false)]), Some((0, 1)));
        // Of a GPU that does not answer nothing is said.
        assert_eq!(pairs.judge(0, &[(2, false)]), None);
        assert_eq!(pairs.judge(1, &[(2, false)]), None);
    }
}
