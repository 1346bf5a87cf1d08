//! Text of the report, for a terminal and for `report.md`.

use std::fmt;

use muster_text::{Column, Table};

use crate::run::report::{Distribution, FaultMeasurements, RunReport, Verdict};

/// Milliseconds per second.
const SECOND_MS: f64 = 1_000.0;

/// Headers of the table of faults.
const FAULT_TITLES: [&str; 7] = [
    "fault",
    "made",
    "no write for (p50 / p99 / max, of n)",
    "placed after",
    "host lost after",
    "displaced units running after",
    "recovered after repair",
];

/// Headers of the table of invariants.
const CHECK_TITLES: [&str; 3] = ["invariant", "evidence", "violations"];

/// Headers of the table of coverage.
const COVERAGE_TITLES: [&str; 2] = ["what", "count"];

/// Repetitions from which on the maximum is meaningful.
const REPETITIONS_MIN: usize = 9;

impl RunReport {
    /// The verdict in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let made: usize = self.faults.iter().map(|it| it.made).sum();
        let head = format!(
            "{}: profile {}, {made} faults in {:.0} s",
            self.verdict.name(),
            self.profile,
            self.seconds
        );
        match self.verdict {
            Verdict::Accepted => format!("{head}, every promise held"),
            Verdict::Rejected => format!("{head}, {} violations", self.violations.len()),
            Verdict::Invalid => format!("{head}, invalid: {}", self.invalid.join("; ")),
        }
    }

    /// The network of a cluster started by the run.
    pub(super) fn of_network(&self) -> Option<String> {
        let network = self.network?;
        Some(format!("Network: {}.", network.words()))
    }

    /// A row for each kind of fault.
    pub(super) fn fault_table(&self) -> Table {
        table(&FAULT_TITLES, self.faults.iter().map(fault_row))
    }

    /// Notes below the table of measurements.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.faults.iter().filter_map(of_gpus).collect();
        if self.faults.iter().any(|it| it.made < REPETITIONS_MIN) {
            notes.push(format!(
                "Measurements with fewer than {REPETITIONS_MIN} repetitions: the maximum is not significant."
            ));
        }
        notes
    }

    /// A row for each invariant.
    pub(super) fn check_table(&self) -> Table {
        let rows = self.checks.iter().map(|it| {
            let judged = format!("{} {}", it.judged, it.what);
            let broken = format!("{} violations", it.violations);
            vec![it.invariant.words().to_owned(), judged, broken]
        });
        table(&CHECK_TITLES, rows)
    }

    /// A row for each count.
    pub(super) fn coverage_table(&self) -> Table {
        let rows = self.coverage.iter();
        let rows = rows.map(|it| vec![it.what.to_owned(), it.count.to_string()]);
        table(&COVERAGE_TITLES, rows)
    }
}

fn fault_row(figures: &FaultMeasurements) -> Vec<String> {
    let made = match figures.without_load + figures.without_effect {
        0 => figures.made.to_string(),
        void => format!("{} (+{void} invalid)", figures.made),
    };
    vec![
        figures.fault.name().to_owned(),
        made,
        spread(figures.unwritable),
        spread(figures.placed),
        spread(figures.lost),
        back(figures),
        spread(figures.whole),
    ]
}

/// Time until displaced units ran again before the next fault, and their share.
fn back(figures: &FaultMeasurements) -> String {
    match (figures.back, figures.displaced) {
        (None, 0) => spread(None),
        (None, displaced) => format!("0 of {displaced}"),
        (back, displaced) => format!("{} of {displaced}", spread(back)),
    }
}

/// Sentence on P4, if GPUs were broken.
fn of_gpus(figures: &FaultMeasurements) -> Option<String> {
    let bystanders = figures.bystanders?;
    let what = figures.fault.name();
    let closed = spread(figures.closed);
    Some(format!(
        "{what}: the GPU was out of placement after {closed}; {bystanders} units that did not hold it were displaced."
    ))
}

fn spread(spread: Option<Distribution>) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |it| {
            let [p50, p99, max] = [it.p50_ms, it.p99_ms, it.max_ms].map(|ms| ms as f64 / SECOND_MS);
            format!("{p50:.2} / {p99:.2} / {max:.2} s, {}", it.count)
        },
    )
}

fn table(titles: &[&'static str], rows: impl Iterator<Item = Vec<String>>) -> Table {
    let columns: Vec<Column> = titles.iter().copied().map(Column::new).collect();
    Table::new(&columns, false).with_rows(rows)
}

impl fmt::Display for RunReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "# Chaos run: {}\n", self.profile)?;
        writeln!(formatter, "**{}**\n", self.sentence())?;
        for violation in &self.violations {
            writeln!(formatter, "- {violation}")?;
        }
        for reason in &self.invalid {
            writeln!(formatter, "- not enough evidence: {reason}")?;
        }
        if !self.violations.is_empty() || !self.invalid.is_empty() {
            writeln!(formatter)?;
        }
        if let Some(grounds) = &self.grounds {
            writeln!(formatter, "{grounds}")?;
        }
        if let Some(network) = self.of_network() {
            writeln!(formatter, "{network}\n")?;
        }
        writeln!(formatter, "Command: `{}`\n", self.again)?;
        writeln!(formatter, "## Faults\n")?;
        writeln!(formatter, "{}", self.fault_table().markdown())?;
        for note in self.notes() {
            writeln!(formatter, "{note}\n")?;
        }
        writeln!(formatter, "## Checks\n")?;
        writeln!(formatter, "{}", self.check_table().markdown())?;
        writeln!(formatter, "## Coverage\n")?;
        writeln!(formatter, "{}", self.coverage_table().markdown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Fault;
    use crate::cluster::NetworkKind;
    use crate::run::checkers::{Check, Invariant};

    fn report(made: usize) -> RunReport {
        let spread = Distribution {
            count: made,
            p50_ms: 120,
            p99_ms: 340,
            max_ms: 340,
        };
        RunReport {
            verdict: Verdict::Accepted,
            profile: "gpu-faults",
            seed: 0,
            repetitions: 1,
            network: Some(NetworkKind::Proxies),
            version: "0",
            seconds: 1.0,
            violations: Vec::new(),
            invalid: Vec::new(),
            checks: vec![Check {
                invariant: Invariant::Watch,
                judged: 40,
                what: "revisions",
                violations: 0,
            }],
            faults: vec![FaultMeasurements {
                made,
                unwritable: Some(spread),
                back: Some(spread),
                displaced: made + 2,
                closed: Some(spread),
                bystanders: Some(0),
                ..FaultMeasurements::none_of(Fault::GpuFaulted)
            }],
            coverage: Vec::new(),
            grounds: None,
            again: "muster chaos run".to_owned(),
        }
    }

    #[test]
    fn figures_say_of_how_many_they_are_and_promises_how_much_was_judged() {
        let text = report(3).to_string();
        for part in [
            "| 0.12 / 0.34 / 0.34 s, 3 |",
            "| 0.12 / 0.34 / 0.34 s, 3 of 5 |",
            "| I10 watchers receive every event, once, in order | 40 revisions | 0 violations |",
            "out of placement after 0.12 / 0.34 / 0.34 s, 3; 0 units",
            "fewer than 9 repetitions",
            "Network: everything on loopback, with a proxy before each replica.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!report(9).to_string().contains("fewer than"));
    }
}
