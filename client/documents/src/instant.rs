//! Instants as RFC 3339.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant of the cluster, in documents RFC 3339 in UTC with milliseconds: `2026-11-21T10:00:00.000Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant {
    /// Milliseconds since the Unix epoch.
    pub ms: u64,
}

impl Instant {
    /// As a timestamp; the last one that can be displayed if it is later.
    #[must_use]
    pub fn timestamp(self) -> Timestamp {
        let ms = i64::try_from(self.ms).unwrap_or(i64::MAX);
        Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.3}", self.timestamp())
    }
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let timestamp: Timestamp = text.parse().map_err(D::Error::custom)?;
        let ms = u64::try_from(timestamp.as_millisecond()).map_err(D::Error::custom)?;
        Ok(Self { ms })
    }
}

impl JsonSchema for Instant {
    fn schema_name() -> Cow<'static, str> {
        "Instant".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "date-time",
            "description": "RFC 3339 in UTC with milliseconds",
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn instants_are_utc_with_milliseconds_and_are_read_back() {
        let instant = Instant {
            ms: 1_700_000_000_007,
        };
        let text = serde_json::to_string(&instant).unwrap();
        assert_eq!(text, "\"2023-11-14T22:13:20.007Z\"");
        assert_eq!(serde_json::from_str::<Instant>(&text).unwrap(), instant);
    }
}
