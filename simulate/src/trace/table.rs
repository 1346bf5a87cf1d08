//! CSV file with named columns, read row by row; every error carries its line and column.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use csv::StringRecord;
use flate2::read::MultiGzDecoder;

use crate::trace::TraceError;

/// Milliseconds per second.
const SECOND_MS: f64 = 1_000.0;
/// Maximum time in seconds; a larger one is a typing error: about 3,000 years, whose milliseconds are exact
/// in a double.
const SECONDS_MAX: f64 = 1e11;

/// A column of a schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    name: &'static str,
    required: bool,
}

impl Column {
    /// A required column.
    pub(super) const fn required(name: &'static str) -> Self {
        Self {
            name,
            required: true,
        }
    }

    /// An optional column.
    pub(super) const fn optional(name: &'static str) -> Self {
        Self {
            name,
            required: false,
        }
    }
}

/// Positions of a file's columns.
#[derive(Debug)]
struct Layout {
    path: Box<Path>,
    columns: Vec<(&'static str, usize)>,
}

/// An open file.
pub(super) struct Table {
    layout: Arc<Layout>,
    records: csv::StringRecordsIntoIter<Box<dyn Read>>,
}

impl Table {
    /// Opens a file and locates the schema's columns in it.
    pub(super) fn open(path: &Path, schema: &[Column]) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|source| TraceError::Open {
            path: path.to_owned(),
            source,
        })?;
        let bytes: Box<dyn Read> = if path.extension().is_some_and(|extension| extension == "gz") {
            Box::new(MultiGzDecoder::new(BufReader::new(file)))
        } else {
            Box::new(BufReader::new(file))
        };
        let mut reader = csv::Reader::from_reader(bytes);
        let names = reader.headers().map_err(|source| TraceError::Read {
            path: path.to_owned(),
            source,
        })?;
        let columns = columns(path, schema, names)?;
        Ok(Self {
            layout: Arc::new(Layout {
                path: path.into(),
                columns,
            }),
            records: reader.into_records(),
        })
    }
}

impl Iterator for Table {
    type Item = Result<Row, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.records.next()?.map(|record| Row {
            layout: Arc::clone(&self.layout),
            record,
        });
        Some(row.map_err(|source| unreadable(&self.layout.path, source)))
    }
}

fn unreadable(path: &Path, source: csv::Error) -> TraceError {
    let path = path.to_owned();
    match source.kind() {
        csv::ErrorKind::UnequalLengths {
            pos,
            expected_len,
            len,
        } => TraceError::Uneven {
            path,
            line: pos.as_ref().map_or(0, csv::Position::line),
            fields: *len,
            columns: *expected_len,
        },
        _ => TraceError::Read { path, source },
    }
}

fn columns(
    path: &Path,
    schema: &[Column],
    names: &StringRecord,
) -> Result<Vec<(&'static str, usize)>, TraceError> {
    let mut found = Vec::new();
    for (position, name) in names.iter().enumerate() {
        let Some(column) = schema.iter().find(|column| column.name == name.trim()) else {
            let known: Vec<&str> = schema.iter().map(|column| column.name).collect();
            return Err(TraceError::UnknownColumn {
                path: path.to_owned(),
                column: name.to_owned(),
                known: known.join(", "),
            });
        };
        if found.iter().any(|(name, _)| *name == column.name) {
            return Err(TraceError::ColumnTwice {
                path: path.to_owned(),
                column: column.name,
            });
        }
        found.push((column.name, position));
    }
    let missing = schema
        .iter()
        .find(|column| column.required && !found.iter().any(|(name, _)| *name == column.name));
    match missing {
        Some(column) => Err(TraceError::MissingColumn {
            path: path.to_owned(),
            column: column.name,
        }),
        None => Ok(found),
    }
}

/// One line of a table.
pub(super) struct Row {
    layout: Arc<Layout>,
    record: StringRecord,
}

impl Row {
    /// A field's text without surrounding space; empty if the source does not say.
    pub(super) fn text(&self, column: &'static str) -> &str {
        let columns = &self.layout.columns;
        let position = columns.iter().find(|(name, _)| *name == column);
        position
            .and_then(|(_, position)| self.record.get(*position))
            .unwrap_or("")
            .trim()
    }

    /// A required text.
    pub(super) fn name(&self, column: &'static str) -> Result<String, TraceError> {
        let text = self.text(column);
        if text.is_empty() {
            return Err(self.wrong(column, "is empty"));
        }
        Ok(text.to_owned())
    }

    /// An optional text.
    pub(super) fn optional_text(&self, column: &'static str) -> Option<String> {
        let text = self.text(column);
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// A required whole number.
    pub(super) fn number<T: FromStr>(&self, column: &'static str) -> Result<T, TraceError> {
        let text = self.text(column);
        text.parse()
            .map_err(|_| self.wrong(column, "is not a whole number in range"))
    }

    /// An optional whole number.
    pub(super) fn optional_number<T: FromStr>(
        &self,
        column: &'static str,
    ) -> Result<Option<T>, TraceError> {
        if self.text(column).is_empty() {
            return Ok(None);
        }
        self.number(column).map(Some)
    }

    /// Seconds, with or without a fraction (`4045910.0`), as milliseconds.
    pub(super) fn seconds_ms(&self, column: &'static str) -> Result<u64, TraceError> {
        let seconds = self.decimal(column)?;
        if seconds > SECONDS_MAX {
            let rule = format!("is over the limit of {SECONDS_MAX} s (SECONDS_MAX)");
            return Err(self.wrong(column, &rule));
        }
        Ok(rounded(seconds * SECOND_MS))
    }

    /// A non-negative number as whole thousandths.
    pub(super) fn milli(&self, column: &'static str) -> Result<u32, TraceError> {
        let thousandths = self.decimal(column)? * 1_000.0;
        u32::try_from(rounded(thousandths)).map_err(|_| {
            let rule = format!("is over the limit of {}", u32::MAX / 1_000);
            self.wrong(column, &rule)
        })
    }

    fn decimal(&self, column: &'static str) -> Result<f64, TraceError> {
        match self.text(column).parse::<f64>() {
            Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
            _ => Err(self.wrong(column, "is not a number of 0 or more")),
        }
    }

    /// An error about one field of this line.
    pub(super) fn wrong(&self, column: &'static str, rule: &str) -> TraceError {
        TraceError::Field {
            path: self.layout.path.to_path_buf(),
            line: self.record.position().map_or(0, csv::Position::line),
            column,
            value: self.text(column).to_owned(),
            rule: rule.to_owned(),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of 0 or more; the cast saturates at the largest integer"
)]
const fn rounded(number: f64) -> u64 {
    number.round() as u64
}
