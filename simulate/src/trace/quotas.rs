//! Quota files `*_vcs.csv`: GPUs guaranteed to each virtual cluster.

use std::collections::BTreeSet;
use std::path::Path;

use crate::trace::TraceError;
use crate::trace::table::{Column, Table};

const SCHEMA: [Column; 3] = [
    Column::required("vc"),
    Column::optional("from_date"),
    Column::required("gpus"),
];

/// Quota of a virtual cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Name of the virtual cluster.
    pub queue: String,
    /// First day on which it applies (`2020-09-01`); from the beginning if the source does not say.
    pub from_date: Option<String>,
    /// Number of GPUs.
    pub gpus: u64,
}

/// Reads a file of quotas, in order of the file.
///
/// # Errors
/// [`TraceError`] names the file, the line and the column; also for two quotas of one virtual cluster from one date.
pub fn read_quotas(path: &Path) -> Result<Vec<Quota>, TraceError> {
    let mut known = BTreeSet::new();
    let rows = Table::open(path, &SCHEMA)?;
    rows.map(|row| {
        let row = row?;
        let quota = Quota {
            queue: row.name("vc")?,
            from_date: row.optional_text("from_date"),
            gpus: row.number("gpus")?,
        };
        if !known.insert((quota.queue.clone(), quota.from_date.clone())) {
            return Err(row.wrong("vc", "has a quota from this date in a line above"));
        }
        Ok(quota)
    })
    .collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn quotas_are_read_and_their_errors_placed() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "vc,from_date,gpus\na,,512\nb,2020-09-01,64").unwrap();
        let quotas = read_quotas(file.path()).unwrap();
        assert_eq!(quotas[1].from_date.as_deref(), Some("2020-09-01"));
        assert_eq!(quotas.iter().map(|quota| quota.gpus).sum::<u64>(), 576);
        let mut twice = tempfile::NamedTempFile::new().unwrap();
        writeln!(twice, "vc,from_date,gpus\na,,512\na,2020-09-01,64\na,,64").unwrap();
        let text = read_quotas(twice.path()).unwrap_err().to_string();
        assert!(
            text.ends_with("line 4: vc: `a` has a quota from this date in a line above"),
            "{text}"
        );
        writeln!(file, "c,,many").unwrap();
        let text = read_quotas(file.path()).unwrap_err().to_string();
        assert!(
            text.ends_with("line 4: gpus: `many` is not a whole number in range"),
            "{text}"
        );
    }
}
