//! Location of hosts in the cell tree.

use jiff::Timestamp;
use muster_documents::{CellSource, HostCells, HostLocation};

use crate::output::{Cell, Column, Row, Tone};

/// The cells inside by level: `socket 0-3,4-7 switch 0-1,2-3,4-5,6-7`.
fn inside_text(cells: &HostCells) -> String {
    let mut text = String::new();
    let mut level = "";
    for cell in &cells.inside {
        if cell.level != level {
            level = &cell.level;
            let space = if text.is_empty() { "" } else { " " };
            text.push_str(&format!("{space}{level} "));
        } else {
            text.push(',');
        }
        text.push_str(&positions(&cell.gpus));
    }
    text
}

/// Ascending positions in short: `0-3+5`.
fn positions(gpus: &[u32]) -> String {
    let runs = gpus.chunk_by(|one, next| one + 1 == *next);
    let runs = runs.map(|run| match run {
        [one] => one.to_string(),
        run => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    runs.collect::<Vec<_>>().join("+")
}

impl Row for HostLocation {
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME"),
        Column::new("LIES IN"),
        Column::new("BY"),
        Column::new("GPUS FORM"),
        Column::new("BY"),
        Column::new("DOUBTS"),
    ];

    fn cells(&self, _: Timestamp) -> Vec<Cell> {
        let by = |source: Option<CellSource>| source.map_or("", CellSource::as_str);
        let cells = &self.cells;
        vec![
            (*self.name).into(),
            (*cells.path).into(),
            by(cells.path_by).into(),
            inside_text(cells).into(),
            by(cells.inside_by).into(),
            Cell::toned(cells.flaws.join("; "), Tone::Waiting),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use muster_proto::v1;

    use super::*;

    #[test]
    fn cells_inside_are_shown_in_short() {
        let group = |level: &str, gpus: &[u32]| v1::CellGroup {
            level: level.to_owned(),
            gpus: gpus.to_vec(),
        };
        let cells = HostCells::from(v1::HostCells {
            inside: vec![
                group("socket", &[0, 1, 2, 5]),
                group("socket", &[3, 4]),
                group("switch", &[0]),
            ],
            inside_by: v1::CellSource::Worker.into(),
            ..v1::HostCells::default()
        });
        assert_eq!(inside_text(&cells), "socket 0-2+5,3-4 switch 0");
        assert_eq!(
            (cells.path_by, cells.inside_by),
            (None, Some(CellSource::Worker))
        );
    }
}
