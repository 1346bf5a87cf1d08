//! Time series of a future, for pictures.

use crate::measure::Series;
use crate::report::seconds;

/// Totals at every instant since the fork.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    /// GPUs held by attempts.
    held: Series,
    /// Number of waiting jobs.
    waiting: Series,
}

impl Timeline {
    /// Sets the GPUs held and the jobs waiting from an instant on, in milliseconds since the fork.
    pub(super) fn set(&mut self, at_ms: u64, held: u64, waiting: u64) {
        self.held.set(at_ms, held);
        self.waiting.set(at_ms, waiting);
    }

    /// Extends the series unchanged to an instant.
    pub(super) fn end(&mut self, at_ms: u64) {
        self.held.advance(at_ms);
        self.waiting.advance(at_ms);
    }

    /// GPUs held, as a line over hours.
    pub(super) fn held_line(&self) -> Vec<(f64, f64)> {
        steps(&self.held)
    }

    /// Jobs waiting, as a line over hours.
    pub(super) fn waiting_line(&self) -> Vec<(f64, f64)> {
        steps(&self.waiting)
    }
}

/// A series' averages over hours, as steps.
fn steps(series: &Series) -> Vec<(f64, f64)> {
    const HOUR_S: f64 = 3_600.0;
    let slice_hours = seconds(series.slice_ms()) / HOUR_S;
    let averages = series.averages().into_iter().zip(0u32..);
    averages
        .flat_map(|(value, slice)| {
            let from = f64::from(slice) * slice_hours;
            [(from, value), (from + slice_hours, value)]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_steps_up_to_the_end() {
        let mut timeline = Timeline::default();
        timeline.set(0, 8, 1);
        timeline.set(1_000, 4, 1);
        timeline.end(2_000);
        let heights: Vec<f64> = timeline.held_line().iter().map(|(_, y)| *y).collect();
        assert_eq!(heights, [8.0, 8.0, 4.0, 4.0]);
        assert_eq!(timeline.waiting_line().len(), 4);
    }
}
