//! Conditions: `metric operator integer`, and how they must hold.

use std::fmt;

use muster_model::named_enum;
use muster_model::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};
use serde::{Deserialize, Serialize};

use crate::rules::{COUNT_MAX, SPAN_MS_MAX};

named_enum! {
    /// Comparison operator.
    Operator {
        /// Greater.
        Above = ">",
        /// Greater or equal.
        AtLeast = ">=",
        /// Less.
        Below = "<",
        /// Less or equal.
        AtMost = "<=",
        /// Equal.
        Equal = "=",
        /// Not equal.
        Other = "!=",
    }
}

impl Operator {
    /// Whether the comparison holds.
    #[must_use]
    pub const fn holds(self, value: i64, against: i64) -> bool {
        match self {
            Self::Above => value > against,
            Self::AtLeast => value >= against,
            Self::Below => value < against,
            Self::AtMost => value <= against,
            Self::Equal => value == against,
            Self::Other => value != against,
        }
    }
}

/// How readings must meet a condition before it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Hold {
    /// One reading is enough.
    Once,
    /// Consecutive readings.
    InARow(u32),
    /// A number of the last readings.
    OutOf {
        /// Number that must meet it.
        met: u32,
        /// Number of readings considered.
        of: u32,
    },
    /// Occurrences within a span.
    Within {
        /// Number of occurrences.
        times: u32,
        /// Span in milliseconds.
        span_ms: u64,
    },
    /// Every reading of a span.
    For {
        /// Span in milliseconds.
        span_ms: u64,
    },
}

/// Condition of a side of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Condition {
    /// Name of the metric.
    pub metric: String,
    /// Comparison operator.
    pub operator: Operator,
    /// Threshold, in the unit at the end of the metric's name.
    pub value: i64,
    /// How it must hold.
    pub hold: Hold,
    /// Restricts it to GPUs whose model contains this text.
    pub model: Option<String>,
}

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    /// The problem and the expected form.
    pub fn parse(text: &str) -> Result<Self, (String, String)> {
        let mut parts = text.split(',').map(str::trim);
        let comparison = parts.next().unwrap_or_default();
        let words: Vec<&str> = comparison.split_whitespace().collect();
        let [metric, operator, value] = words[..] else {
            return Err(wrong(comparison, "write `metric operator integer`"));
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if !metric.bytes().all(is_name) {
            return Err(wrong(
                metric,
                "name the metric with letters, digits and `_`",
            ));
        }
        let operator = Operator::of(operator).ok_or_else(|| {
            let remedy = format!("compare with one of {}", Operator::all_names());
            wrong(operator, &remedy)
        })?;
        let value = value
            .parse()
            .map_err(|_| wrong(value, "write a whole number; parts are per mille"))?;
        let mut condition = Self {
            metric: metric.to_owned(),
            operator,
            value,
            hold: Hold::Once,
            model: None,
        };
        for part in parts {
            match part.strip_prefix("on ") {
                Some(model) if condition.model.is_none() => {
                    condition.model = Some(model.trim().to_owned());
                }
                None if condition.hold == Hold::Once => condition.hold = Hold::parse(part)?,
                _ => {
                    return Err(wrong(
                        part,
                        "say how it must hold, and `on MODEL`, once each",
                    ));
                }
            }
        }
        Ok(condition)
    }

    /// Whether it applies to GPUs of this model.
    #[must_use]
    pub fn is_about(&self, model: &str) -> bool {
        self.model
            .as_ref()
            .is_none_or(|part| model.contains(part.as_str()))
    }
}

impl Hold {
    fn parse(text: &str) -> Result<Self, (String, String)> {
        let hold = Self::read(text).ok_or_else(|| {
            wrong(
                text,
                "write `3 in a row`, `6 of 10`, `2 in 24h` or `for 60s` (s, m, h or d)",
            )
        })?;
        let (count, span_ms) = match hold {
            Self::Once => (1, 1),
            Self::InARow(count) => (count, 1),
            Self::OutOf { met, of } if met > of => {
                return Err(wrong(text, "ask for at most as many as there are"));
            }
            Self::OutOf { met: 0, .. } => (0, 1),
            Self::OutOf { of, .. } => (of, 1),
            Self::Within { times, span_ms } => (times, span_ms),
            Self::For { span_ms } => (1, span_ms),
        };
        if count == 0 || count > COUNT_MAX {
            return Err(wrong(
                text,
                &format!("count from 1 to {COUNT_MAX} (COUNT_MAX)"),
            ));
        }
        if span_ms == 0 || span_ms > SPAN_MS_MAX {
            return Err(wrong(
                text,
                "name a span of at least 1s and at most 30d (SPAN_MS_MAX)",
            ));
        }
        Ok(hold)
    }

    fn read(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        Some(match words[..] {
            [count, "in", "a", "row"] => Self::InARow(count.parse().ok()?),
            [met, "of", of] => Self::OutOf {
                met: met.parse().ok()?,
                of: of.parse().ok()?,
            },
            [times, "in", span] => Self::Within {
                times: times.parse().ok()?,
                span_ms: read_span(span)?,
            },
            ["for", span] => Self::For {
                span_ms: read_span(span)?,
            },
            _ => return None,
        })
    }
}

fn wrong(text: &str, remedy: &str) -> (String, String) {
    (format!("`{text}` is not understood"), remedy.to_owned())
}

/// Milliseconds of a span such as `60s`, `10m`, `24h` or `7d`.
pub(super) fn read_span(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit_ms = match unit {
        "s" => SECOND_MS,
        "m" => MINUTE_MS,
        "h" => HOUR_MS,
        "d" => DAY_MS,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit_ms)
}

/// A span, formatted for rule files.
pub(super) struct Span(pub(super) u64);

impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "m")];
        let fits = |(unit_ms, _): &&(u64, &str)| self.0.is_multiple_of(*unit_ms);
        let (unit_ms, word) = units.iter().find(fits).unwrap_or(&(SECOND_MS, "s"));
        write!(formatter, "{}{word}", self.0 / unit_ms)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} {} {}",
            self.metric, self.operator, self.value
        )?;
        match self.hold {
            Hold::Once => {}
            Hold::InARow(count) => write!(formatter, ", {count} in a row")?,
            Hold::OutOf { met, of } => write!(formatter, ", {met} of {of}")?,
            Hold::Within { times, span_ms } => {
                write!(formatter, ", {times} in {}", Span(span_ms))?;
            }
            Hold::For { span_ms } => write!(formatter, ", for {}", Span(span_ms))?,
        }
        self.model
            .as_ref()
            .map_or(Ok(()), |model| write!(formatter, ", on {model}"))
    }
}
