//! Settings of span export.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings::BrokenRule;

/// Spans of a job from submission to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TracingSettings {
    /// The collector that receives spans by OTLP over gRPC, `http://host:4317`; best one on this host,
    /// since the connection is not encrypted. No spans are recorded without it.
    #[schemars(extend("x-variable" = "MUSTER_OTLP_ENDPOINT"))]
    pub otlp_endpoint: Option<String>,
    /// One job in this many has its spans exported; use the same number on all replicas and workers, which
    /// then select the same jobs.
    pub one_in: u64,
}

impl Default for TracingSettings {
    /// Exports all jobs, once there is a collector.
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            one_in: 1,
        }
    }
}

impl TracingSettings {
    /// Checks everything that can be checked without a connection.
    ///
    /// # Errors
    /// The first violated rule.
    pub fn validate(&self) -> Result<(), BrokenRule> {
        let broken = |key: &str, rule: String| BrokenRule {
            key: format!("tracing.{key}"),
            rule,
        };
        if self.one_in == 0 {
            return Err(broken("one_in", "must be at least 1".to_owned()));
        }
        let Some(endpoint) = &self.otlp_endpoint else {
            return Ok(());
        };
        let authority = endpoint
            .strip_prefix("http://")
            .map(|rest| rest.trim_end_matches('/'));
        let is_address =
            authority.is_some_and(|it| !it.is_empty() && !it.contains(['/', '@', ' ']));
        if is_address {
            return Ok(());
        }
        Err(broken(
            "otlp_endpoint",
            format!("`{endpoint}` is not `http://host:port`"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(endpoint: Option<&str>, one_in: u64) -> Option<String> {
        let settings = TracingSettings {
            otlp_endpoint: endpoint.map(ToOwned::to_owned),
            one_in,
        };
        settings.validate().err().map(|broken| broken.key)
    }

    #[test]
    fn invalid_tracing_settings_are_named() {
        for good in ["http://127.0.0.1:4317", "http://collector:4317/"] {
            assert_eq!(broken(Some(good), 1), None, "{good}");
        }
        for wrong in [
            "",
            "collector:4317",
            "https://a:1",
            "http://",
            "http://a:b@c:1",
            "http://c:1/v1",
        ] {
            let key = broken(Some(wrong), 1);
            assert_eq!(key.as_deref(), Some("tracing.otlp_endpoint"), "{wrong}");
        }
        assert_eq!(broken(None, 0).as_deref(), Some("tracing.one_in"));
    }
}
