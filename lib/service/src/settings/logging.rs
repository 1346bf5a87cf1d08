//! Settings of logging.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

use crate::settings::BrokenRule;

/// Default filter. While a replica is down, openraft warns at every heartbeat; metrics and alerts report
/// that better.
const DEFAULT_FILTER: &str = "info,openraft=error";

/// Settings of logging.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoggingSettings {
    /// Log levels: a level (error, warn, info, debug, trace) and, after commas, levels of single modules,
    /// as in info,muster_scheduler::leader=debug.
    #[schemars(extend("x-reload" = true, "x-variable" = "MUSTER_LOG"))]
    pub filter: String,
    /// Format of the log's lines on stderr.
    #[schemars(extend("x-alias" = "log"))]
    pub format: LogFormat,
}

impl Default for LoggingSettings {
    fn default() -> Self {
        Self {
            filter: DEFAULT_FILTER.to_owned(),
            format: LogFormat::Text,
        }
    }
}

impl LoggingSettings {
    /// Parses the filter.
    ///
    /// # Errors
    /// The filter is invalid; the option is called `logging.filter`.
    pub fn filter(&self) -> Result<EnvFilter, BrokenRule> {
        EnvFilter::try_new(&self.filter).map_err(|error| BrokenRule {
            key: "logging.filter".to_owned(),
            rule: format!("`{}` is not a log filter: {error}", self.filter),
        })
    }
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Human-readable text.
    #[default]
    Text,
    /// One JSON document per line.
    Json,
}
