//! Parts of every long-running role: settings, logging, tracing, the metrics page, systemd notification and back-off.
#![forbid(unsafe_code)]

pub mod backoff;
#[cfg(feature = "metrics-page")]
pub mod exporter;
pub mod logging;
pub mod settings;
pub mod systemd;
pub mod tracing;
