//! NVLink connectivity between pairs of GPUs of a host.
//!
//! Not all GPUs of a host are linked with each other, and the driver does not report the intended topology:
//! a pair is monitored once it was seen linked.

use std::collections::BTreeSet;

use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus};
use nvml_wrapper::{Device, Nvml};

use crate::gpu::nvml::sensors::count;
use crate::gpu::sensors::GpuReadings;

/// The rule about pairs, and its metrics: linked pairs, and pairs that were linked and are not now.
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

    /// Reads the pairs of a GPU with all GPUs of higher index.
    pub(super) fn read(
        &mut self,
        nvml: &'static Nvml,
        device: &Device<'static>,
        index: u32,
        readings: &mut GpuReadings,
    ) {
        let gpus = nvml.device_count().unwrap_or_default();
        let peers: Vec<(u32, bool)> = (index + 1..gpus)
            .filter_map(|other| {
                let peer = nvml.device_by_index(other).ok()?;
                let status = device.p2p_status(&peer, P2pCapabilitiesIndex::NvLink);
                Some((other, status.ok()? == P2pStatus::Ok))
            })
            .collect();
        if let Some((good, bad)) = self.judge(index, &peers) {
            readings.sample(PAIRS_RULE, &[(GOOD_PAIRS, good), (BAD_PAIRS, bad)]);
        }
    }

    /// Numbers of linked pairs and of pairs that lost their link; none if no pair was ever linked.
    fn judge(&mut self, index: u32, peers: &[(u32, bool)]) -> Option<(i64, i64)> {
        let linked = peers.iter().filter(|(_, is_linked)| *is_linked);
        self.0.extend(linked.map(|(other, _)| (index, *other)));
        let count_of = |wanted: bool| {
            let pairs = peers.iter().filter(|(other, is_linked)| {
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
        // A GPU that does not answer is not counted.
        assert_eq!(pairs.judge(0, &[(2, false)]), None);
        assert_eq!(pairs.judge(1, &[(2, false)]), None);
    }
}
