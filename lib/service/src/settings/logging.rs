//! What a role logs, and in which form.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

use crate::settings::BrokenRule;

/// What is logged if nobody says. Of a replica that is down, openraft warns at every beat; metrics and alerts tell that better.
const DEFAULT_FILTER: &str = "info,openraft=error";

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoggingSettings {
    /// What is logged: a level (error, warn, info, debug, trace) and, after commas, those of single modules, as in
    /// info,muster_scheduler::leader=debug.
    #[schemars(extend("x-reload" = true, "x-variable" = "MUSTER_LOG"))]
    pub filter: String,
    /// Form of the log's lines on stderr.
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
    /// The filter, read.
    ///
    /// # Errors
    /// If it is none; the option is called `logging.filter`.
    pub fn filter(&self) -> Result<EnvFilter, BrokenRule> {
        EnvFilter::try_new(&self.filter).map_err(|error| BrokenRule {
            key: "logging.filter".to_owned(),
            rule: format!("`{}` says nothing of what to log: {error}", self.filter),
        })
    }
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON document a line.
    Json,
}
