//! Logs of the long-running commands, on stderr.

use muster_settings::{LogFormat, LoggingSettings};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::failure::Failure;

/// Variable that says what is logged, as `RUST_LOG` does elsewhere: `info,muster_scheduler=debug`.
const FILTER_VARIABLE: &str = "MUSTER_LOG";

/// Changes what is logged while the process runs.
pub(crate) struct LogControl(reload::Handle<EnvFilter, Registry>);

impl LogControl {
    /// Logs this from now on.
    pub(crate) fn filter(&self, settings: &LoggingSettings) -> Result<(), Failure> {
        let filter = (settings.filter()).map_err(|broken| Failure::usage(broken.to_string()))?;
        let failed = |error| Failure::new(format!("cannot change what is logged: {error}"));
        self.0.reload(filter).map_err(failed)
    }
}

/// Starts logging of a command that has no settings file; once per process.
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
    let filter = settings.filter();
    let filter = filter.map_err(|broken| Failure::usage(broken.to_string()))?;
    let (filter, handle) = reload::Layer::new(filter);
    let registry = tracing_subscriber::registry().with(filter);
    let lines = fmt::layer().with_writer(std::io::stderr);
    let started = match settings.format {
        LogFormat::Text => {
            let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
            registry.with(lines.with_ansi(is_terminal)).try_init()
        }
        LogFormat::Json => registry.with(lines.json()).try_init(),
    };
    started.map_err(|error| Failure::new(format!("cannot start logging: {error}")))?;
    Ok(LogControl(handle))
}
