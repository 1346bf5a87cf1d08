//! Readings of GPUs, for the rules of health and for graphs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_model::command::GpuDescription;
use muster_model::ids::GpuUuid;
use muster_model::time::MonotonicMs;
use serde::{Deserialize, Serialize};

use crate::gpu::GpuError;

/// What one look at a GPU gave. What could not be read is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuReadings {
    /// Metrics with their values, by the rule that they are for.
    pub samples: Vec<(String, Vec<(String, i64)>)>,
    /// Gauges, by the names that NVIDIA's exporter gives them.
    pub gauges: Vec<(String, f64)>,
    /// Processes that compute on it, by their numbers on the host; none where the driver does not say.
    #[serde(default)]
    pub processes: Option<Vec<u32>>,
}

impl GpuReadings {
    /// Adds what was read for a rule.
    pub(super) fn sample(&mut self, rule: &str, metrics: &[(&str, i64)]) {
        let metrics = metrics.iter();
        let metrics = metrics.map(|(name, value)| ((*name).to_owned(), *value));
        self.samples.push((rule.to_owned(), metrics.collect()));
    }

    /// Adds a gauge.
    pub(super) fn gauge(&mut self, name: &str, value: f64) {
        self.gauges.push((name.to_owned(), value));
    }
}

/// Reads GPUs. Calls may hang: they are made on a thread of their own.
pub trait GpuSensors: Send {
    /// Reads one GPU.
    ///
    /// # Errors
    /// Why nothing can be read of any GPU now. What is wrong with one is told by the backend.
    fn read(&mut self, gpu: &GpuDescription, now: MonotonicMs) -> Result<GpuReadings, GpuError>;
}

/// What a timeline says of simulated GPUs: `RULE.METRIC` for a rule's metric, anything else for a gauge.
#[derive(Clone, Debug, Default)]
pub(super) struct SimulatedSensors(Arc<Mutex<BTreeMap<GpuUuid, BTreeMap<String, i64>>>>);

impl SimulatedSensors {
    /// A metric has this value from now on.
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
