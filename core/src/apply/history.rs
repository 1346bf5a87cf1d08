//! Past usage of queues, decayed: counted up whenever what a queue holds changes, so that it can be read at any time.

use std::sync::Arc;

use crate::apply::Step;
use crate::quota::within;

impl Step<'_> {
    /// Counts what a queue and those around it have used up to now; called before what they hold changes.
    pub(super) fn settle_histories(&mut self, queue: &str) {
        if self.state.history_half_life_ms.is_some() {
            for name in within(queue) {
                self.settle_history(name);
            }
        }
    }

    /// Counts what all queues have used up to now.
    pub(super) fn settle_all_histories(&mut self) {
        if self.state.history_half_life_ms.is_some() {
            let names: Vec<Arc<str>> = self.state.queues.keys().cloned().collect();
            for name in names {
                self.settle_history(&name);
            }
        }
    }

    fn settle_history(&mut self, name: &str) {
        let (time, Some(half_life_ms)) = (self.state.time, self.state.history_half_life_ms) else {
            return;
        };
        let usage = self.state.index.usage.get(name);
        let gpus = usage.map_or(0, |usage| usage.total.held.gpus);
        if let Some(queue) = self.state.queues.get_mut(name)
            && queue.history.as_of < time
        {
            let history = queue.history.at(time, gpus, half_life_ms);
            Arc::make_mut(queue).history = history;
        }
    }
}
