//! All measured rows as one table.

use std::fmt::Write as _;

use serde::Serialize;

use crate::machine::Machine;
use crate::row::Row;

const TITLES: [&str; 6] = ["what", "measured", "unit", "goal", "met", "conditions"];

/// All rows and the machine that they were measured on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    quick: bool,
    pub(crate) rows: Vec<Row>,
    /// Figures that could not be measured, with the reason.
    pub(crate) failed: Vec<String>,
}

impl Report {
    pub(crate) const fn new(machine: Machine, quick: bool) -> Self {
        Self {
            machine,
            quick,
            rows: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// Completes the report.
    pub(crate) fn finish(&mut self) -> anyhow::Result<()> {
        self.machine.look_again()
    }

    /// An aligned table that is Markdown as well.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("{}\n\n", self.machine);
        if self.quick {
            text.push_str("Measured with `--quick`: not to be quoted.\n\n");
        }
        text.push_str(&table(&self.cells()));
        for failure in &self.failed {
            // Writing to a string cannot fail.
            let _written = writeln!(text, "\nNot measured: {failure}");
        }
        text
    }

    fn cells(&self) -> Vec<[String; TITLES.len()]> {
        self.rows
            .iter()
            .map(|row| {
                let goal = row.goal.map_or_else(String::new, |goal| goal.to_string());
                [
                    row.what.clone(),
                    row.values.to_string(),
                    row.unit.to_owned(),
                    goal,
                    row.verdict().to_owned(),
                    row.conditions.clone(),
                ]
            })
            .collect()
    }
}

fn table(rows: &[[String; TITLES.len()]]) -> String {
    let titles = TITLES.map(str::to_owned);
    let widths: Vec<usize> = (0..TITLES.len())
        .map(|column| {
            let cells = rows.iter().map(|row| row[column].len());
            cells.max().unwrap_or(0).max(titles[column].len())
        })
        .collect();
    let line = |cells: &[String]| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        format!("| {} |\n", padded.join(" | "))
    };
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let mut text = line(&titles) + &line(&rule);
    for row in rows {
        text.push_str(&line(row));
    }
    text
}
