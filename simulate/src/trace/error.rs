//! Why a file of a trace cannot be used: always with the file, the line and the column.

use std::io;
use std::path::PathBuf;

/// A file that cannot be read as what it should be.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("opening {}", path.display())]
    Open {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The bytes are damaged.
    #[error("reading {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: csv::Error,
    },
    /// A line has more or fewer fields than the first one has names.
    #[error("{}: line {line}: has {fields} fields, and line 1 names {columns} columns", path.display())]
    Uneven {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// What it has.
        fields: u64,
        /// What it should have.
        columns: u64,
    },
    /// A column is named twice.
    #[error("{}: line 1: the column `{column}` is named twice", path.display())]
    ColumnTwice {
        /// Which file.
        path: PathBuf,
        /// Which column.
        column: &'static str,
    },
    /// A column that the schema requires is not there.
    #[error("{}: line 1: the column `{column}` is missing", path.display())]
    MissingColumn {
        /// Which file.
        path: PathBuf,
        /// Which column.
        column: &'static str,
    },
    /// A column that the schema does not have.
    #[error("{}: line 1: unknown column `{column}` (known: {known})", path.display())]
    UnknownColumn {
        /// Which file.
        path: PathBuf,
        /// Which column.
        column: String,
        /// What the schema has.
        known: String,
    },
    /// A field breaks its rule.
    #[error("{}: line {line}: {column}: `{value}` {rule}", path.display())]
    Field {
        /// Which file.
        path: PathBuf,
        /// Counted from 1, the line of names included.
        line: u64,
        /// Which column.
        column: &'static str,
        /// What it holds.
        value: String,
        /// What it should hold.
        rule: String,
    },
    /// The file holds nothing but names.
    #[error("{}: there is no line after the names of the columns", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
    },
}
