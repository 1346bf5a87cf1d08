//! Trace spans of this process: configured by a service's settings, or by a variable for other commands.

use std::time::Duration;

use muster_service::settings::TracingSettings;
use muster_tracing::Export;

use crate::failure::Failure;

/// Variable with the collector's address, which services read too.
const ENDPOINT_VARIABLE: &str = "MUSTER_OTLP_ENDPOINT";
/// Longest wait for the collector before a process ends.
const FINISH_MAX: Duration = Duration::from_secs(2);

/// Exports the spans of a service, if its settings name a collector.
pub(crate) fn export(
    settings: &TracingSettings,
    service: &'static str,
    instance: String,
) -> Result<(), Failure> {
    let Some(endpoint) = settings.otlp_endpoint.clone() else {
        return Ok(());
    };
    let export = Export {
        endpoint,
        one_in: settings.one_in,
        service,
        instance,
    };
    let failed = |error: muster_tracing::StartError| {
        Failure::usage(format!("setting `tracing.otlp_endpoint`: {error}"))
    };
    muster_tracing::start(export).map_err(failed)
}

/// Exports the spans of a command, if the variable names a collector.
pub(crate) fn export_by_variable() -> Result<(), Failure> {
    let endpoint = std::env::var(ENDPOINT_VARIABLE).ok();
    let settings = TracingSettings {
        otlp_endpoint: endpoint.filter(|text| !text.is_empty()),
        ..TracingSettings::default()
    };
    export(&settings, "muster-cli", std::process::id().to_string())
        .map_err(|error| Failure::usage(format!("{ENDPOINT_VARIABLE}: {}", error.text())))
}

/// Sends the queued spans before this process ends.
pub(crate) async fn finish() {
    muster_tracing::finish(FINISH_MAX).await;
}
