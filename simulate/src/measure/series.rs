//! Time series kept as averages of equal slices whose number is bounded.

/// Maximum number of slices; when a run grows longer, pairs of slices are merged.
const SLICES_MAX: usize = 1_024;
/// Initial length of a slice.
const SLICE_MS_MIN: u64 = 1_000;

/// A step function of time and its integral over every slice.
///
/// The length of a slice is what the run so far requires, doubling from one second on, so all series of a
/// run that are advanced to the same instant have the same slices.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    value: u64,
    since_ms: u64,
    slice_ms: u64,
    integrals: Vec<u128>,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            value: 0,
            since_ms: 0,
            slice_ms: SLICE_MS_MIN,
            integrals: Vec::new(),
        }
    }
}

impl Series {
    /// Sets the value from now on.
    pub(crate) fn set(&mut self, now_ms: u64, value: u64) {
        if value != self.value {
            self.advance(now_ms);
            self.value = value;
        }
    }

    /// Increases the value from now on.
    pub(crate) fn add(&mut self, now_ms: u64, more: u64) {
        self.set(now_ms, self.value + more);
    }

    /// Decreases the value from now on.
    pub(crate) fn subtract(&mut self, now_ms: u64, less: u64) {
        self.set(now_ms, self.value - less);
    }

    /// Current value.
    pub(crate) const fn value(&self) -> u64 {
        self.value
    }

    /// Advances the integrals to an instant.
    pub(crate) fn advance(&mut self, now_ms: u64) {
        while now_ms / self.slice_ms >= SLICES_MAX as u64 {
            self.double();
        }
        let mut from_ms = self.since_ms;
        while from_ms < now_ms {
            let slice = usize::try_from(from_ms / self.slice_ms)
                .expect("there are at most SLICES_MAX slices");
            let end_ms = ((from_ms / self.slice_ms + 1) * self.slice_ms).min(now_ms);
            if slice >= self.integrals.len() {
                self.integrals.resize(slice + 1, 0);
            }
            self.integrals[slice] += u128::from(self.value) * u128::from(end_ms - from_ms);
            from_ms = end_ms;
        }
        self.since_ms = self.since_ms.max(now_ms);
    }

    fn double(&mut self) {
        self.slice_ms *= 2;
        let pairs = self.integrals.chunks(2);
        self.integrals = pairs.map(|pair| pair.iter().sum()).collect();
    }

    /// Length of a slice.
    pub(crate) const fn slice_ms(&self) -> u64 {
        self.slice_ms
    }

    /// The average over every slice; the last one may be shorter than the others.
    #[expect(clippy::cast_precision_loss, reason = "for pictures and tables")]
    pub(crate) fn averages(&self) -> Vec<f64> {
        let slices = self.integrals.iter().zip(0u64..);
        slices
            .map(|(integral, slice)| {
                let length_ms = self.slice_ms.min(self.since_ms - slice * self.slice_ms);
                *integral as f64 / length_ms as f64
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_hold_averages() {
        let mut series = Series::default();
        series.set(0, 4);
        series.set(500, 8);
        series.set(2_500, 0);
        series.advance(4_000);
        assert_eq!(series.averages(), [6.0, 8.0, 4.0, 0.0]);
    }

    #[test]
    fn a_long_run_keeps_its_integral_in_bounded_slices() {
        let mut series = Series::default();
        let end_ms = 11_000_000_000;
        for at_ms in (0..end_ms).step_by(7_654_321) {
            series.set(at_ms, at_ms % 11);
        }
        series.set(end_ms, 3);
        assert!(series.integrals.len() <= SLICES_MAX, "{}", series.slice_ms);
        let mut expected = 0;
        for at_ms in (0..end_ms).step_by(7_654_321) {
            expected += u128::from(at_ms % 11) * u128::from(7_654_321.min(end_ms - at_ms));
        }
        assert_eq!(series.integrals.iter().sum::<u128>(), expected);
    }

    #[test]
    fn series_at_one_instant_have_the_same_slices() {
        let mut busy = Series::default();
        (0..5_000).for_each(|at| busy.set(at * 1_000, at));
        let mut idle = Series::default();
        for series in [&mut busy, &mut idle] {
            series.advance(5_000_000);
        }
        assert_eq!(busy.slice_ms(), idle.slice_ms());
        assert_eq!(busy.averages().len(), idle.averages().len());
    }
}
