//! One line of the table.

use std::fmt;

use serde::Serialize;

use crate::samples::Samples;

/// One measured figure under one set of conditions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) what: String,
    /// How: sizes, numbers of runs, what else ran.
    pub(crate) conditions: String,
    /// Of all values.
    pub(crate) unit: &'static str,
    /// What came out.
    pub(crate) values: Values,
    /// What is wanted; none for a figure that another one is compared with.
    pub(crate) goal: Option<Goal>,
}

/// What came out.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Values {
    /// Of several runs.
    Runs {
        /// The middle one.
        median: f64,
        /// The smallest.
        min: f64,
        /// The greatest.
        max: f64,
    },
    /// Of many single operations.
    Percentiles {
        /// Half are not above.
        p50: f64,
        /// 99 of 100 are not above.
        p99: f64,
        /// None is above.
        max: f64,
    },
    /// A count or the only value there is.
    One(f64),
}

/// What is wanted.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Goal {
    /// The median must reach it.
    AtLeast(f64),
    /// The median must not exceed it.
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
    /// Of several runs.
    pub(crate) fn runs(samples: &Samples) -> Self {
        Self::Runs {
            median: samples.median(),
            min: samples.min(),
            max: samples.max(),
        }
    }

    /// Of many operations.
    pub(crate) fn percentiles(samples: &Samples) -> Self {
        Self::Percentiles {
            p50: samples.median(),
            p99: samples.quantile(0.99),
            max: samples.max(),
        }
    }

    /// The value that stands for all.
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
    /// Whether the goal is reached, where there is one.
    pub(crate) fn is_met(&self) -> Option<bool> {
        let values = self.values;
        self.goal.map(|goal| match goal {
            Goal::AtLeast(bound) => values.middle() >= bound,
            Goal::AtMost(bound) => values.middle() <= bound,
            Goal::Percentiles { p50, p99 } => values.middle() <= p50 && values.tail() <= p99,
        })
    }

    /// `yes`, `no`, or nothing where there is no goal.
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
    fn numbers_are_short() {
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
