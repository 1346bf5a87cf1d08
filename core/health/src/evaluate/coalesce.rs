//! Deduplication of equal lines within a short time: a worker's guard against floods.

use std::collections::BTreeMap;

use muster_model::ids::GpuUuid;
use muster_model::time::TimeMs;

/// Equal XIDs of a GPU within this span are one (NCSA Delta: 5 s).
const SPAN_MS: u64 = 5_000;
/// Pairs of GPU and code that are remembered: all codes of 16 GPUs at once.
const PAIRS_MAX: usize = 4_096;

/// Classification of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// The first of its kind in a while.
    New {
        /// Number of equal lines since the last reported one that were suppressed.
        suppressed: u64,
    },
    /// A repetition of a recently reported line.
    Again,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    last: TimeMs,
    suppressed: u64,
}

/// Times of the last codes per GPU. Lines that name no known GPU share an entry.
#[derive(Clone, Debug, Default)]
pub struct Coalescer {
    pairs: BTreeMap<(Option<GpuUuid>, u32), Pair>,
}

impl Coalescer {
    /// Records a line. Each further one within five seconds of the last belongs to it, and so on: a flood is
    /// reported once.
    pub fn record(&mut self, now: TimeMs, gpu: Option<GpuUuid>, code: u32) -> LineKind {
        if let Some(pair) = self.pairs.get_mut(&(gpu, code)) {
            let is_same = now.since(pair.last) < SPAN_MS;
            pair.last = now;
            if is_same {
                pair.suppressed += 1;
                return LineKind::Again;
            }
            let suppressed = std::mem::take(&mut pair.suppressed);
            return LineKind::New { suppressed };
        }
        if self.pairs.len() >= PAIRS_MAX {
            let oldest = self.pairs.iter().min_by_key(|(_, pair)| pair.last);
            if let Some(key) = oldest.map(|(key, _)| *key) {
                self.pairs.remove(&key);
            }
        }
        let pair = Pair {
            last: now,
            suppressed: 0,
        };
        self.pairs.insert((gpu, code), pair);
        LineKind::New { suppressed: 0 }
    }
}
