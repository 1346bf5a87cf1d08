//! The report as text: the same words for a terminal and for `report.md`.

use std::fmt;

use crate::run::report::{FaultFigures, RunReport, Spread, Verdict};

/// Milliseconds of a second.
const SECOND_MS: f64 = 1_000.0;

/// Titles of the table of faults.
pub(super) const FAULT_TITLES: [&str; 7] = [
    "fault",
    "made",
    "no write for (p50 / p99 / max, of n)",
    "placed after",
    "host lost after",
    "displaced work back after",
    "whole after repair",
];

/// Titles of the table of promises.
pub(super) const CHECK_TITLES: [&str; 3] = ["promise", "judged", "broken"];
/// Repetitions from which on the longest time says something.
const REPETITIONS_MIN: usize = 9;

impl RunReport {
    /// The last word, in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let made: usize = self.faults.iter().map(|it| it.made).sum();
        let head = format!(
            "{}: profile {}, {made} faults in {:.0} s",
            self.verdict.word(),
            self.profile,
            self.seconds
        );
        match self.verdict {
            Verdict::Accepted => format!("{head}, every promise held"),
            Verdict::Rejected => format!("{head}, {} violations", self.violations.len()),
            Verdict::Invalid => format!("{head}, it proves nothing: {}", self.invalid.join("; ")),
        }
    }

    /// What stood between replicas and hosts, if it was ours.
    pub(super) fn of_network(&self) -> Option<String> {
        let network = self.network?;
        Some(format!("Network: {}.", network.words()))
    }

    /// A row of the table for each kind of fault.
    pub(super) fn fault_rows(&self) -> Vec<Vec<String>> {
        self.faults.iter().map(fault_row).collect()
    }

    /// What has to be said of the figures beside.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.faults.iter().filter_map(of_gpus).collect();
        if self.faults.iter().any(|it| it.made < REPETITIONS_MIN) {
            notes.push(format!(
                "Figures of fewer than {REPETITIONS_MIN} repetitions: the longest time says little."
            ));
        }
        notes
    }

    /// A row for each promise.
    pub(super) fn check_rows(&self) -> Vec<Vec<String>> {
        let rows = self.checks.iter().map(|it| {
            let judged = format!("{} {}", it.judged, it.what);
            let broken = format!("{} violations", it.violations);
            vec![it.invariant.words().to_owned(), judged, broken]
        });
        rows.collect()
    }

    /// A row for each thing that was counted.
    pub(super) fn coverage_rows(&self) -> Vec<Vec<String>> {
        let rows = self.coverage.iter();
        rows.map(|it| vec![it.what.to_owned(), it.count.to_string()])
            .collect()
    }
}

fn fault_row(figures: &FaultFigures) -> Vec<String> {
    let made = match figures.without_load + figures.without_effect {
        0 => figures.made.to_string(),
        void => format!("{} (+{void} that prove nothing)", figures.made),
    };
    vec![
        figures.fault.words().to_owned(),
        made,
        spread(figures.unwritable),
        spread(figures.placed),
        spread(figures.lost),
        back(figures),
        spread(figures.whole),
    ]
}

/// What was displaced and ran again before the next fault, of how much.
fn back(figures: &FaultFigures) -> String {
    match (figures.back, figures.displaced) {
        (None, 0) => spread(None),
        (None, displaced) => format!("0 of {displaced}"),
        (back, displaced) => format!("{} of {displaced}", spread(back)),
    }
}

/// P4, where GPUs were broken.
fn of_gpus(figures: &FaultFigures) -> Option<String> {
    let bystanders = figures.bystanders?;
    let what = figures.fault.words();
    let closed = spread(figures.closed);
    Some(format!(
        "{what}: nothing was placed there any more after {closed}; {bystanders} units that did not hold the GPU lost their place."
    ))
}

fn spread(spread: Option<Spread>) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |it| {
            let [p50, p99, max] = [it.p50_ms, it.p99_ms, it.max_ms].map(|ms| ms as f64 / SECOND_MS);
            format!("{p50:.2} / {p99:.2} / {max:.2} s, {}", it.count)
        },
    )
}

/// A table in Markdown.
fn table(formatter: &mut fmt::Formatter<'_>, titles: &[&str], rows: &[Vec<String>]) -> fmt::Result {
    writeln!(formatter, "| {} |", titles.join(" | "))?;
    let rule: Vec<&str> = titles.iter().map(|_| "---").collect();
    writeln!(formatter, "|{}|", rule.join("|"))?;
    for row in rows {
        writeln!(formatter, "| {} |", row.join(" | "))?;
    }
    writeln!(formatter)
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
        writeln!(formatter, "Again: `{}`\n", self.again)?;
        writeln!(formatter, "## Faults\n")?;
        table(formatter, &FAULT_TITLES, &self.fault_rows())?;
        for note in self.notes() {
            writeln!(formatter, "{note}\n")?;
        }
        writeln!(formatter, "## What was judged\n")?;
        table(formatter, &CHECK_TITLES, &self.check_rows())?;
        writeln!(formatter, "## What the verdict rests on\n")?;
        table(formatter, &["what", "count"], &self.coverage_rows())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::NetworkKind;
    use crate::run::Fault;
    use crate::run::judge::{Check, Invariant};

    fn report(made: usize) -> RunReport {
        let spread = Spread {
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
            faults: vec![FaultFigures {
                made,
                unwritable: Some(spread),
                back: Some(spread),
                displaced: made + 2,
                closed: Some(spread),
                bystanders: Some(0),
                ..FaultFigures::none_of(Fault::GpuFaulted)
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
            "| I10 watchers hear everything, once, in order | 40 revisions | 0 violations |",
            "placed there any more after 0.12 / 0.34 / 0.34 s, 3; 0 units",
            "fewer than 9 repetitions",
            "Network: everything on loopback, with a proxy before each replica.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!report(9).to_string().contains("fewer than"));
    }
}
