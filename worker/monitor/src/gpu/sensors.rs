//! Readings of GPUs, for the health rules and for graphs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_model::command::GpuDescription;
use muster_model::ids::GpuUuid;
use muster_model::time::MonotonicMs;
use serde::{Deserialize, Serialize};

use crate::gpu::GpuError;

/// Readings of one sweep of a GPU. Values that could not be read are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuReadings {
    /// Metrics with their values, by the rule that they are for.
    pub samples: Vec<(String, Vec<(String, i64)>)>,
    /// Gauges by their names in NVIDIA's exporter.
    pub gauges: Vec<(String, f64)>,
    /// Host process ids of compute processes on it; none if the driver does not list them.
    #[serde(default)]
    pub processes: Option<Vec<u32>>,
}

impl GpuReadings {
    /// Adds the metrics of a rule.
    pub(super) fn sample(&mut self, rule: &str, metrics: &[(&str, i64)]) {
        let metrics = metrics
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value));
        self.samples.push((rule.to_owned(), metrics.collect()));
    }

    /// Adds a gauge.
    pub(super) fn gauge(&mut self, name: &str, value: f64) {
        self.gauges.push((name.to_owned(), value));
    }
}

/// Reader of GPU sensors. Calls may hang: they are made on a separate thread.
pub trait GpuSensors: Send {
    /// Reads one GPU.
    ///
    /// # Errors
    /// If no GPU can be read at this time. A fault of a single GPU is reported by the backend.
    fn read(&mut self, gpu: &GpuDescription, now: MonotonicMs) -> Result<GpuReadings, GpuError>;
}

/// Readings of simulated GPUs from the timeline: `RULE.METRIC` for a rule's metric, other names for a
/// gauge.
#[derive(Clone, Debug, Default)]
pub(super) struct SimulatedSensors(Arc<Mutex<BTreeMap<GpuUuid, BTreeMap<String, i64>>>>);

impl SimulatedSensors {
    /// Sets a metric from now on.
    pub(super) fn set(&self, gpu: GpuUuid, metric: String, value: i64) {
        self.lock().entry(gpu).or_default().insert(metric, value);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<GpuUuid, BTreeMap<String, i64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GpuSensors for SimulatedSensors {
    fn read(&mut self, gpu: &GpuDescription, _now: MonotonicMs) -> Result<GpuReadings, GpuError> {
        let mut readings = GpuReadings::default();
        let all = self.lock();
        let mut samples: BTreeMap<&str, Vec<(&str, i64)>> = BTreeMap::new();
        for (name, value) in all.get(&gpu.uuid).into_iter().flatten() {
            match name.split_once('.') {
                Some((rule, metric)) => samples.entry(rule).or_default().push((metric, *value)),
                // Counters stay far below 2^53.
                None => readings.gauge(name, *value as f64),
            }
        }
        for (rule, metrics) in samples {
            readings.sample(rule, &metrics);
        }
        Ok(readings)
    }
}
