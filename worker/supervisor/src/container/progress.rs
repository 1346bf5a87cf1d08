//! Progress of a pull, from the engine's messages about layers.

use std::collections::BTreeMap;
use std::fmt;

use crate::container::image::{PullAmounts, PullEvent};

/// Maximum number of counted layers: engines allow 127.
const LAYERS_MAX: usize = 1_024;
/// Bytes of a megabyte, as registries count them.
const MEGABYTE: u64 = 1_000_000;

/// Progress of a pull. Podman reports little of it, docker all.
#[derive(Debug, Default)]
pub(super) struct Progress(BTreeMap<String, Layer>);

#[derive(Debug, Default)]
struct Layer {
    amounts: PullAmounts,
    is_done: bool,
}

impl Progress {
    /// Applies a message of the engine.
    pub(super) fn note(&mut self, event: PullEvent) {
        let is_known = self.0.contains_key(&event.id);
        if event.id.is_empty() || (self.0.len() >= LAYERS_MAX && !is_known) {
            return;
        }
        let layer = self.0.entry(event.id).or_default();
        layer.is_done |= event.status.ends_with("complete") || event.status == "Already exists";
        if let Some(amounts) = event.progress.filter(|amounts| amounts.total > 0) {
            layer.amounts = amounts;
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return formatter.write_str("no progress information from the engine");
        }
        let done = self.0.values().filter(|layer| layer.is_done).count();
        let sum = |amount: fn(&PullAmounts) -> u64| {
            let amounts = self.0.values().map(|layer| amount(&layer.amounts));
            amounts.fold(0u64, u64::saturating_add) / MEGABYTE
        };
        write!(
            formatter,
            "{done} of {} layers, {} of {} MB",
            self.0.len(),
            sum(|amounts| amounts.current),
            sum(|amounts| amounts.total)
        )
    }
}
