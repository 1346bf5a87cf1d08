//! Logs of the long-running commands, on stderr.

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// Variable that says what is logged, as `RUST_LOG` does elsewhere: `info,muster_scheduler=debug`.
const FILTER_VARIABLE: &str = "MUSTER_LOG";
/// What is logged where the variable is not set.
const FILTER_DEFAULT: &str = "info";

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON document a line
    Json,
}

/// Starts logging; once per process.
pub(crate) fn start(format: LogFormat) -> Result<(), Failure> {
    let filter = match std::env::var(FILTER_VARIABLE) {
        Ok(text) => EnvFilter::try_new(&text)
            .map_err(|error| Failure::usage(format!("{FILTER_VARIABLE}={text}: {error}")))?,
        Err(_) => EnvFilter::new(FILTER_DEFAULT),
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => builder
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    started.map_err(|error| Failure::new(format!("cannot start logging: {error}")))
}
