//! Logging of the long-running commands, to stderr.

use muster_service::logging::LogControl;
use muster_service::settings::{LogFormat, LoggingSettings};

use crate::failure::Failure;

/// Variable with the log filter, like `RUST_LOG` elsewhere: `info,muster_scheduler=debug`.
const FILTER_VARIABLE: &str = "MUSTER_LOG";

/// Starts logging of a command without a settings file; once per process.
pub(crate) fn start(format: LogFormat) -> Result<(), Failure> {
    let mut settings = LoggingSettings {
        format,
        ..LoggingSettings::default()
    };
    if let Ok(filter) = std::env::var(FILTER_VARIABLE) {
        settings.filter = filter;
        let named = |error: Failure| Failure::usage(format!("{FILTER_VARIABLE}: {}", error.text()));
        return start_as(&settings).map(drop).map_err(named);
    }
    start_as(&settings).map(drop)
}

/// Starts logging, once per process.
pub(crate) fn start_as(settings: &LoggingSettings) -> Result<LogControl, Failure> {
    use muster_service::logging::StartError;
    muster_service::logging::start(settings).map_err(|error| match error {
        StartError::Filter(broken) => Failure::usage(broken.to_string()),
        StartError::Started(_) => Failure::new(error.to_string()),
    })
}
