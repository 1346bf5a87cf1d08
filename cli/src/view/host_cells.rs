//! Location of hosts in the cell tree.

use jiff::Timestamp;
use muster_proto::v1;
use serde::Serialize;

use crate::output::{Cell, Column, Row, Tone};
use crate::view::word::word;

/// The cells around and inside a host.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HostCellsView {
    path: String,
    path_by: Option<String>,
    inside: Vec<InsideCellView>,
    inside_by: Option<String>,
    flaws: Vec<String>,
}

/// A cell between a host and its GPUs.
#[derive(Clone, Debug, Serialize)]
struct InsideCellView {
    level: String,
    gpus: Vec<u32>,
}

impl HostCellsView {
    /// View of the cluster's answer.
    pub(crate) fn new(cells: v1::HostCells) -> Self {
        Self {
            path_by: source(cells.path_by()),
            inside_by: source(cells.inside_by()),
            path: cells.path,
            inside: { cells.inside.into_iter() }
                .map(|cell| InsideCellView {
                    level: cell.level,
                    gpus: cell.gpus,
                })
                .collect(),
            flaws: cells.flaws,
        }
    }

    /// The cells inside by level: `socket 0-3,4-7 switch 0-1,2-3,4-5,6-7`.
    fn inside_text(&self) -> String {
        let mut text = String::new();
        let mut level = "";
        for cell in &self.inside {
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
}

/// Source of a host's location; `None` if it has none.
fn source(source: v1::CellSource) -> Option<String> {
    let is_known = source != v1::CellSource::Unspecified;
    is_known.then(|| word(source.as_str_name(), "CELL_SOURCE_"))
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

/// A host in a list of locations.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HostPlaceView {
    name: String,
    #[serde(flatten)]
    cells: HostCellsView,
}

impl From<v1::Host> for HostPlaceView {
    fn from(host: v1::Host) -> Self {
        Self {
            name: host.name,
            cells: HostCellsView::new(host.cells.unwrap_or_default()),
        }
    }
}

impl Row for HostPlaceView {
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME"),
        Column::new("LIES IN"),
        Column::new("BY"),
        Column::new("GPUS FORM"),
        Column::new("BY"),
        Column::new("DOUBTS"),
    ];
    const KEY: &'static str = "hosts";

    fn cells(&self, _: Timestamp) -> Vec<Cell> {
        let by = |source: &Option<String>| source.clone().unwrap_or_default();
        let cells = &self.cells;
        vec![
            (*self.name).into(),
            (*cells.path).into(),
            by(&cells.path_by).into(),
            cells.inside_text().into(),
            by(&cells.inside_by).into(),
            Cell::toned(cells.flaws.join("; "), Tone::Waiting),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_inside_are_told_in_short() {
        let group = |level: &str, gpus: &[u32]| v1::CellGroup {
            level: level.to_owned(),
            gpus: gpus.to_vec(),
        };
        let view = HostCellsView::new(v1::HostCells {
            inside: vec![
                group("socket", &[0, 1, 2, 5]),
                group("socket", &[3, 4]),
                group("switch", &[0]),
            ],
            inside_by: v1::CellSource::Worker.into(),
            ..v1::HostCells::default()
        });
        assert_eq!(view.inside_text(), "socket 0-2+5,3-4 switch 0");
        assert_eq!(
            (view.path_by, view.inside_by.as_deref()),
            (None, Some("worker"))
        );
    }
}
