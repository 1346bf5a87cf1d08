//! All measured rows as one table.

use std::fmt::Write as _;

use muster_text::{Column, Table};
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
        self.machine.record_final_load()
    }

    /// The report for a terminal.
    pub(crate) fn text(&self) -> String {
        self.around(&self.table().to_string())
    }

    /// The report in Markdown.
    pub(crate) fn markdown(&self) -> String {
        self.around(&self.table().markdown())
    }

    fn around(&self, table: &str) -> String {
        let mut text = format!("{}\n\n", self.machine);
        if self.quick {
            text.push_str("Measured with `--quick`: not to be quoted.\n\n");
        }
        text.push_str(table);
        for failure in &self.failed {
            // Writing to a string cannot fail.
            let _written = writeln!(text, "\nNot measured: {failure}");
        }
        text
    }

    fn table(&self) -> Table {
        let rows = self.rows.iter().map(|row| {
            let goal = row.goal.map_or_else(String::new, |goal| goal.to_string());
            vec![
                row.what.clone(),
                row.values.to_string(),
                row.unit.to_owned(),
                goal,
                row.verdict().to_owned(),
                row.conditions.clone(),
            ]
        });
        Table::new(&TITLES.map(Column::new), false).with_rows(rows)
    }
}
