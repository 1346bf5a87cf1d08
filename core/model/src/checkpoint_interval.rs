//! Interval between checkpoints that loses the least work (Young and Daly).

/// Upper bound of the advice: preemptions and time limits come on top of failures. One hour, Meta's planning
/// value.
pub const ADVICE_MS_MAX: u64 = 3_600_000;

/// Returns the median save time; `None` if none was reported.
#[must_use]
pub fn median_save_ms(saves: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    let mut saves: Vec<u64> = saves.flatten().collect();
    saves.sort_unstable();
    saves.get(saves.len() / 2).copied()
}

/// Returns the milliseconds between two saves that lose the least work, for a save time and a mean time
/// between failures.
#[must_use]
pub fn interval_ms(save_ms: u64, mean_time_ms: u64) -> u64 {
    let (save, mean) = (u128::from(save_ms.max(1)), u128::from(mean_time_ms.max(1)));
    if save >= 2 * mean {
        // No interval makes progress: save no more often than it fails.
        return mean_time_ms.clamp(1, ADVICE_MS_MAX);
    }
    let young = (2 * save * mean).isqrt();
    let daly = (young + save / 3 + save * young / (18 * mean)).saturating_sub(save);
    let interval = daly.max(save);
    u64::try_from(interval)
        .unwrap_or(u64::MAX)
        .min(ADVICE_MS_MAX)
}
