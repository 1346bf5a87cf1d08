//! Measured values with percentiles and a histogram.

use std::time::Duration;

use serde::Serialize;

/// Measured values, unordered.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Adds a duration, in milliseconds.
    pub(crate) fn push_ms(&mut self, value: Duration) {
        self.push(value.as_secs_f64() * 1e3);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest value that `share` (0 to 1) of all do not exceed; NaN if empty.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted
            .get(rank.max(1) - 1)
            .or(sorted.last())
            .copied()
            .unwrap_or(f64::NAN)
    }

    pub(crate) fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    /// The median.
    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The mean; NaN if empty.
    pub(crate) fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// Counts in buckets of `width`, as `400-500: 12`, without empty buckets.
    pub(crate) fn histogram(&self, width: f64) -> String {
        let mut counts = std::collections::BTreeMap::new();
        for value in &self.0 {
            *counts.entry((value / width) as u64).or_insert(0u32) += 1;
        }
        let step = |position: u64| position as f64 * width;
        let cells: Vec<String> = counts
            .iter()
            .map(|(position, count)| format!("{}-{}: {count}", step(*position), step(position + 1)))
            .collect();
        cells.join(", ")
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<Values: IntoIterator<Item = f64>>(values: Values) -> Self {
        Self(values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_values() {
        let samples: Samples = (1..=100).rev().map(f64::from).collect();
        assert!((samples.median() - 50.0).abs() < f64::EPSILON);
        assert!((samples.quantile(0.99) - 99.0).abs() < f64::EPSILON);
        assert!((samples.quantile(1.0) - samples.max()).abs() < f64::EPSILON);
        assert!((samples.quantile(0.0) - samples.min()).abs() < f64::EPSILON);
        assert!(Samples::default().median().is_nan());
    }

    #[test]
    fn a_histogram_leaves_out_empty_buckets() {
        let samples: Samples = [410.0, 420.0, 730.0].into_iter().collect();
        assert_eq!(samples.histogram(100.0), "400-500: 2, 700-800: 1");
    }
}
