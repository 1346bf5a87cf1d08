//! Prometheus metrics of a replica: names with help texts, the process-wide recorder, and the HTTP
//! listener of `/metrics`.
//!
//! Never labelled by job: per-job series would grow without bound.

pub(crate) mod names;
mod sample;
mod server;

use std::sync::OnceLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

pub(crate) use sample::{Census, sample};
pub(crate) use server::MetricsServer;

use crate::error::Error;

/// Upper bounds of the buckets of durations, in seconds: 0.1 ms to a minute.
const SECONDS: [f64; 19] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 15.0, 30.0, 60.0,
];
/// Upper bounds of the buckets of counts.
const COUNTS: [f64; 8] = [1.0, 4.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0];

static RECORDER: OnceLock<Result<PrometheusHandle, String>> = OnceLock::new();

/// Installs the recorder, once for the process; several replicas in one process share it.
///
/// # Errors
/// Another recorder is installed already.
pub(crate) fn recorder() -> Result<PrometheusHandle, Error> {
    RECORDER
        .get_or_init(|| {
            let handle = PrometheusBuilder::new()
                .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
                .and_then(|builder| {
                    builder.set_buckets_for_metric(Matcher::Suffix("_commands".to_owned()), &COUNTS)
                })
                .and_then(PrometheusBuilder::install_recorder)
                .map_err(|error| error.to_string())?;
            names::describe();
            Ok(handle)
        })
        .clone()
        .map_err(Error::Metrics)
}
