//! Parts of every long-running role: settings, logging, the metrics page and systemd notification.
#![forbid(unsafe_code)]

#[cfg(feature = "metrics-page")]
pub mod exporter;
pub mod logging;
pub mod settings;
pub mod systemd;
