//! Errors in trace files, with the file, the line and the column.

use std::io;
use std::path::PathBuf;

/// A trace file that is missing or invalid.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("opening {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The bytes are damaged.
    #[error("reading {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Position and reason.
        #[source]
        source: csv::Error,
    },
    /// A line has more or fewer fields than the header has columns.
    #[error("{}: line {line}: has {fields} fields, and line 1 names {columns} columns", path.display())]
    Uneven {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// Number of fields.
        fields: u64,
        /// Number of columns.
        columns: u64,
    },
    /// A column is named twice.
    #[error("{}: line 1: the column `{column}` is named twice", path.display())]
    ColumnTwice {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
    },
    /// A required column is missing.
    #[error("{}: line 1: the column `{column}` is missing", path.display())]
    MissingColumn {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
    },
    /// A column that is not in the schema.
    #[error("{}: line 1: unknown column `{column}` (known: {known})", path.display())]
    UnknownColumn {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// Columns of the schema.
        known: String,
    },
    /// A field violates its rule.
    #[error("{}: line {line}: {column}: `{value}` {rule}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// Counted from 1, including the header.
        line: u64,
        /// The column.
        column: &'static str,
        /// Value of the field.
        value: String,
        /// Rule of the field.
        rule: String,
    },
    /// The file contains only the header.
    #[error("{}: there is no line after the header", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}
