//! Counters of devices, which restart at zero when the device is reset.

/// Allowed replays per minute and lane of a PCIe link of each generation, in hundredths: DCGM's limits.
const REPLAYS_PER_LANE_CENTI: [u64; 6] = [15, 30, 48, 96, 192, 384];

/// The last total of a device's counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    last: Option<u64>,
}

impl Counter {
    /// Increase since the last reading. The first reading yields nothing, as its time is unknown. A total
    /// lower than the last one means a reset: all of it is new.
    pub fn increase(&mut self, total: u64) -> i64 {
        let increase = match self.last {
            None => 0,
            Some(last) if total >= last => total - last,
            Some(_) => total,
        };
        self.last = Some(total);
        i64::try_from(increase).unwrap_or(i64::MAX)
    }
}

/// Allowed replays per minute of a PCIe link; `None` for an unknown generation.
#[must_use]
pub fn pcie_replay_limit_per_minute(generation: usize, lanes: u64) -> Option<u64> {
    let centi = REPLAYS_PER_LANE_CENTI.get(generation.checked_sub(1)?)?;
    Some((centi * lanes).div_ceil(100))
}
