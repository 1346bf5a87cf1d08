//! Output formats: tables for users, JSON and YAML for programs, names for shells.

mod json;
mod screen;
mod times;

use clap::ValueEnum;
use jiff::Timestamp;
use muster_documents::Listed;
pub(crate) use muster_text::{Cell, Column, Table, Tone, paint};
use serde::Serialize;

use json::to_json;
pub(crate) use json::to_json_line;
pub(crate) use screen::{Screen, note};
pub(crate) use times::{ago, instant, span, until};

use crate::failure::Failure;

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns for reading
    #[default]
    Table,
    /// As `table`, with more columns
    Wide,
    /// One JSON document
    Json,
    /// One JSON document per line
    Jsonl,
    /// One YAML document
    Yaml,
    /// Names or ids only, one per line
    Name,
}

/// A document that can be a row of a table.
pub(crate) trait Row: Listed {
    /// The columns; wide ones are shown only by `-o wide`.
    const COLUMNS: &'static [Column];

    /// One cell for every column; relative times refer to `now`.
    fn cells(&self, now: Timestamp) -> Vec<Cell>;

    /// Name of the row's object for use in commands.
    fn name(&self) -> String;
}

/// A number with its unit: `1 GPU`, `2 GPUs`.
pub(crate) fn counted(count: impl Into<u64>, noun: &str) -> String {
    match count.into() {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

/// Renders a list of rows read at a revision.
pub(crate) fn render_rows<R: Row>(
    screen: &Screen,
    revision: u64,
    rows: &[R],
) -> Result<String, Failure> {
    Ok(match screen.format {
        Format::Table | Format::Wide => render_table(screen, rows),
        Format::Name => {
            let names: Vec<String> = rows.iter().map(|row| row.name() + "\n").collect();
            names.concat()
        }
        Format::Jsonl => {
            let lines: Result<Vec<String>, Failure> = rows.iter().map(to_json_line).collect();
            lines?.concat()
        }
        Format::Json | Format::Yaml => {
            render_document(screen.format, &R::list(revision, rows.to_vec()))?
        }
    })
}

/// Renders one result for programs; the caller renders tables.
pub(crate) fn render_document<T: Serialize>(
    format: Format,
    document: &T,
) -> Result<String, Failure> {
    match format {
        Format::Yaml => {
            serde_saphyr::to_string(document).map_err(|error| Failure::internal(&error))
        }
        Format::Jsonl => to_json_line(document),
        Format::Json | Format::Table | Format::Wide | Format::Name => to_json(document),
    }
}

/// Renders several results for programs: a list, or one line each.
pub(crate) fn render_documents<T: Serialize>(
    format: Format,
    documents: &[T],
) -> Result<String, Failure> {
    match format {
        Format::Jsonl => {
            let lines: Result<Vec<String>, Failure> = documents.iter().map(to_json_line).collect();
            Ok(lines?.concat())
        }
        format => render_document(format, &documents),
    }
}

fn render_table<R: Row>(screen: &Screen, rows: &[R]) -> String {
    let wide = screen.format == Format::Wide;
    let mut table = Table::new(R::COLUMNS, wide);
    for row in rows {
        table.push(row.cells(screen.now()));
    }
    table.render(screen.headers)
}
