//! One line of the table.

use std::fmt;

use serde::Serialize;

use crate::samples::Samples;

/// One measured figure under one set of conditions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Measured quantity.
    pub(crate) what: String,
    /// Conditions: sizes, numbers of runs, concurrent load.
    pub(crate) conditions: String,
    /// Unit of all values.
    pub(crate) unit: &'static str,
    /// Measured values.
    pub(crate) values: Values,
    /// Goal; `None` for a figure that serves as a comparison.
    pub(crate) goal: Option<Goal>,
}

/// Measured values.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Values {
    /// Several runs.
    Runs {
        /// Median.
        median: f64,
        /// Minimum.
        min: f64,
        /// Maximum.
        max: f64,
    },
    /// Many single operations.
    Percentiles {
        /// 50th percentile.
        p50: f64,
        /// 99th percentile.
        p99: f64,
        /// Maximum.
        max: f64,
    },
    /// A count or a single value.
    One(f64),
}

/// Goal of a figure.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Goal {
    /// The median must be at least this value.
    AtLeast(f64),
    /// The median must be at most this value.
    AtMost(f64),
    /// Neither percentile must exceed its bound.
    Percentiles {
        /// Bound of the median.
        p50: f64,
        /// Bound of the 99th percentile.
        p99: f64,
    },
}

impl Values {
    /// Summarizes several runs.
    pub(crate) fn runs(samples: &Samples) -> Self {
        Self::Runs {
            median: samples.median(),
            min: samples.min(),
            max: samples.max(),
        }
    }

    /// Summarizes many operations.
    pub(crate) fn percentiles(samples: &Samples) -> Self {
        Self::Percentiles {
            p50: samples.median(),
            p99: samples.quantile(0.99),
            max: samples.max(),
        }
    }

    /// The representative value.
    pub(crate) const fn middle(self) -> f64 {
        match self {
            Self::Runs { median, .. } => median,
            Self::Percentiles { p50, .. } => p50,
            Self::One(value) => value,
        }
    }

    const fn tail(self) -> f64 {
        match self {
            Self::Runs { max, .. } => max,
            Self::Percentiles { p99, .. } => p99,
            Self::One(value) => value,
        }
    }
}

impl Row {
    /// Whether the goal is reached, if there is one.
    pub(crate) fn is_met(&self) -> Option<bool> {
        let values = self.values;
        self.goal.map(|goal| match goal {
            Goal::AtLeast(bound) => values.middle() >= bound,
            Goal::AtMost(bound) => values.middle() <= bound,
            Goal::Percentiles { p50, p99 } => values.middle() <= p50 && values.tail() <= p99,
        })
    }

    /// `yes`, `no`, or empty without a goal.
    pub(crate) fn verdict(&self) -> &'static str {
        match self.is_met() {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "",
        }
    }
}

impl fmt::Display for Values {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Runs { median, min, max } => write!(
                formatter,
                "{} ({} to {})",
                Short(median),
                Short(min),
                Short(max)
            ),
            Self::Percentiles { p50, p99, max } => write!(
                formatter,
                "p50 {}, p99 {}, max {}",
                Short(p50),
                Short(p99),
                Short(max)
            ),
            Self::One(value) => write!(formatter, "{}", Short(value)),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::AtLeast(bound) => write!(formatter, ">= {}", Short(bound)),
            Self::AtMost(bound) => write!(formatter, "<= {}", Short(bound)),
            Self::Percentiles { p50, p99 } => {
                write!(formatter, "p50 <= {}, p99 <= {}", Short(p50), Short(p99))
            }
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {} {}", self.what, self.values, self.unit)?;
        if let Some(goal) = self.goal {
            write!(formatter, " (goal {goal})")?;
        }
        write!(formatter, " [{}]", self.conditions)
    }
}

/// A number with about three significant digits.
struct Short(f64);

impl fmt::Display for Short {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value) = self;
        match value.abs() {
            0.0 => write!(formatter, "0"),
            size if size >= 100.0 => write!(formatter, "{}", Grouped(value.round() as i64)),
            size if size >= 10.0 => write!(formatter, "{value:.1}"),
            _ => write!(formatter, "{value:.2}"),
        }
    }
}

/// A whole number with commas between thousands.
struct Grouped(i64);

impl fmt::Display for Grouped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const GROUP: i64 = 1_000;
        if self.0.abs() < GROUP {
            return write!(formatter, "{}", self.0);
        }
        let rest = self.0.abs() % GROUP;
        write!(formatter, "{},{rest:03}", Self(self.0 / GROUP))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_and_grouped() {
        let shown = [0.0, 0.126, 12.34, 412.6, 1_234_567.0].map(|value| Short(value).to_string());
        assert_eq!(shown, ["0", "0.13", "12.3", "413", "1,234,567"]);
    }

    #[test]
    fn both_percentiles_must_reach_the_goal() {
        let row = |p99| Row {
            what: "a figure".to_owned(),
            conditions: String::new(),
            unit: "ms",
            values: Values::Percentiles {
                p50: 5.0,
                p99,
                max: p99,
            },
            goal: Some(Goal::Percentiles {
                p50: 10.0,
                p99: 30.0,
            }),
        };
        assert_eq!(row(30.0).is_met(), Some(true));
        assert_eq!(row(31.0).is_met(), Some(false));
    }
}
