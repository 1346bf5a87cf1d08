//! Prometheus metrics of a long-running role: the process-wide recorder, process metrics, and the HTTP
//! listener of `/metrics`, `/livez` and `/readyz`.
//!
//! A role names and describes its metrics where they are measured. No metric has a job label: such series
//! would grow without bound.
#![forbid(unsafe_code)]

mod server;

use std::sync::OnceLock;

use metrics::{describe_gauge, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_process::Collector;

pub use server::{MetricsServer, Ready, Render};

/// Upper bounds of the buckets of durations, in seconds: 0.1 ms to a minute.
const SECONDS: [f64; 19] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 15.0, 30.0, 60.0,
];
/// Metric measured in hours and days, where other durations end at a minute.
const WAIT_SECONDS: &str = "muster_scheduler_wait_seconds";
/// Upper bounds of its buckets: 0.1 s to four weeks.
const LONG_SECONDS: [f64; 15] = [
    0.1,
    1.0,
    5.0,
    15.0,
    60.0,
    300.0,
    900.0,
    3_600.0,
    7_200.0,
    14_400.0,
    43_200.0,
    86_400.0,
    259_200.0,
    604_800.0,
    2_419_200.0,
];
/// Upper bounds of the buckets of counts.
const COUNTS: [f64; 8] = [1.0, 4.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0];
/// Upper bounds of the buckets of sizes, in bytes: 256 B to 16 MiB.
const BYTES: [f64; 9] = [
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];
/// Constant 1, with the version of the build as a label.
const BUILD_INFO: &str = "muster_build_info";

static RECORDER: OnceLock<Result<Exporter, String>> = OnceLock::new();

/// All metrics of this process.
#[derive(Clone, Debug)]
pub struct Exporter {
    handle: PrometheusHandle,
    process: Collector,
}

/// Installs the recorder, once for the process; several roles in one process share it.
///
/// # Errors
/// Another recorder is installed already.
pub fn install() -> Result<Exporter, String> {
    RECORDER.get_or_init(build).clone()
}

fn build() -> Result<Exporter, String> {
    let buckets: [(&str, &[f64]); 3] = [
        ("_seconds", &SECONDS),
        ("_commands", &COUNTS),
        ("_bytes", &BYTES),
    ];
    let long = [(Matcher::Full(WAIT_SECONDS.to_owned()), &LONG_SECONDS[..])];
    let suffixes = buckets
        .into_iter()
        .map(|(suffix, bounds)| (Matcher::Suffix(suffix.to_owned()), bounds));
    let builder = long
        .into_iter()
        .chain(suffixes)
        .try_fold(PrometheusBuilder::new(), |builder, (matcher, bounds)| {
            builder.set_buckets_for_metric(matcher, bounds)
        });
    let handle = builder
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|error| error.to_string())?;
    let process = Collector::default();
    process.describe();
    describe_gauge!(BUILD_INFO, "1, with the version of this build.");
    gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Ok(Exporter { handle, process })
}

impl Exporter {
    /// Returns the current page of `/metrics`.
    #[must_use]
    pub fn render(&self) -> String {
        self.process.collect();
        self.handle.run_upkeep();
        self.handle.render()
    }
}
