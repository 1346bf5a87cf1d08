//! Retention limits for the logs of ended attempts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use muster_model::time::TimeMs;
use muster_supervisor::{RunId, files};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits::{
    LOG_AGE_MS_MAX, LOG_ATTEMPTS_KEPT_MAX, LOG_BYTES_KEPT_MAX, LOG_UNSHIPPED_BYTES_MAX,
};
use crate::metrics;
use crate::tasks::logs::removals::Removals;
use crate::tasks::logs::shipping::{is_shipped, unshipped_bytes};

/// Retention of the output of ended attempts. The oldest is removed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogRetention {
    /// Time after the last output until an attempt's output is removed, in milliseconds.
    #[schemars(extend("x-reload" = true))]
    pub age_ms_max: u64,
    /// Total bytes of all attempts' output.
    #[schemars(extend("x-reload" = true))]
    pub bytes_max: u64,
    /// Number of attempts whose output is kept.
    #[schemars(extend("x-reload" = true))]
    pub attempts_max: usize,
    /// Total bytes beyond which even output that waits to be shipped is removed.
    #[schemars(extend("x-reload" = true))]
    pub unshipped_bytes_max: u64,
}

impl Default for LogRetention {
    fn default() -> Self {
        Self {
            age_ms_max: LOG_AGE_MS_MAX,
            bytes_max: LOG_BYTES_KEPT_MAX,
            attempts_max: LOG_ATTEMPTS_KEPT_MAX,
            unshipped_bytes_max: LOG_UNSHIPPED_BYTES_MAX,
        }
    }
}

/// One attempt's log directory.
struct LogDirectory {
    id: RunId,
    path: PathBuf,
    bytes: u64,
    modified: SystemTime,
}

/// Removes the oldest logs until the rest are within the limits. Logs of `live` attempts stay, and those
/// that wait to be shipped, if output is shipped. Returns the number removed. An attempt that cannot be
/// read or removed does not block others.
///
/// # Errors
/// Of the file system about the parent folder.
pub(crate) fn remove_old(
    logs: &Path,
    live: &BTreeSet<RunId>,
    retention: &LogRetention,
    ships: bool,
    now: TimeMs,
) -> io::Result<usize> {
    let mut kept = ended(logs, live)?;
    kept.sort_by_key(|attempt| std::cmp::Reverse(attempt.modified));
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(now.0);
    let age_max = Duration::from_millis(retention.age_ms_max);
    let mut bytes = 0u64;
    let mut surplus = Vec::new();
    for attempt in kept {
        // A clock that was set back makes nothing old.
        let age = now.duration_since(attempt.modified).unwrap_or_default();
        let whole = bytes.saturating_add(attempt.bytes);
        let is_over =
            attempts_over(&surplus, retention) || whole > retention.bytes_max || age > age_max;
        let must_wait = ships && whole <= retention.unshipped_bytes_max;
        if is_over && (!must_wait || attempt.is_shipped()) {
            surplus.push((true, attempt));
        } else {
            bytes = whole;
            surplus.push((false, attempt));
        }
    }
    remove(logs, surplus, ships)
}

impl LogDirectory {
    /// Whether no output waits to be shipped, as far as is known.
    fn is_shipped(&self) -> bool {
        is_shipped(&self.path).unwrap_or_else(|error| {
            warn(self.id, &error);
            false
        })
    }

    /// Bytes that wait to be shipped. Unknown ones count as zero, and are logged.
    fn unshipped(&self) -> u64 {
        unshipped_bytes(&self.path).unwrap_or_else(|error| {
            tracing::warn!(
                id = %self.id, path = %self.path.display(), %error,
                "cannot determine how much output is removed unshipped; not counted"
            );
            0
        })
    }
}

/// Logs that the output of an attempt is left for now.
fn warn(id: RunId, error: &io::Error) {
    tracing::warn!(%id, %error, "removing the old output of an attempt failed");
}

fn attempts_over(seen: &[(bool, LogDirectory)], retention: &LogRetention) -> bool {
    let staying = seen.iter().filter(|(goes, _)| !goes).count();
    staying >= retention.attempts_max
}

fn remove(logs: &Path, attempts: Vec<(bool, LogDirectory)>, ships: bool) -> io::Result<usize> {
    let going: Vec<LogDirectory> = attempts
        .into_iter()
        .filter_map(|(goes, attempt)| goes.then_some(attempt))
        .collect();
    if going.is_empty() {
        return Ok(0);
    }
    let ids: Vec<RunId> = going.iter().rev().map(|attempt| attempt.id).collect();
    Removals::of(logs).add(&ids)?;
    let mut removed = 0;
    for attempt in going {
        // Determined before the removal.
        let lost_bytes = if ships { attempt.unshipped() } else { 0 };
        match files::remove_directory(&attempt.path) {
            Ok(()) => {
                removed += 1;
                metrics::unshipped_lost(lost_bytes);
            }
            Err(error) => warn(attempt.id, &error),
        }
    }
    Ok(removed)
}

fn ended(logs: &Path, live: &BTreeSet<RunId>) -> io::Result<Vec<LogDirectory>> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(logs)? {
        let entry = entry?;
        let id: Option<RunId> = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(id) = id.filter(|id| !live.contains(id)) else {
            continue;
        };
        match extent(&entry.path()) {
            Ok((bytes, modified)) => kept.push(LogDirectory {
                id,
                path: entry.path(),
                bytes,
                modified,
            }),
            Err(error) => warn(id, &error),
        }
    }
    Ok(kept)
}

/// Total size of all files, and the time of the last write.
fn extent(directory: &Path) -> io::Result<(u64, SystemTime)> {
    let mut bytes = 0;
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in fs::read_dir(directory)? {
        let metadata = entry?.metadata()?;
        bytes += metadata.len();
        newest = newest.max(metadata.modified()?);
    }
    Ok((bytes, newest))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;
    use muster_supervisor::output::segments::{OutputStream, SegmentWriter};
    use muster_supervisor::{LogLimits, Shipped};

    use super::*;

    const NOW: TimeMs = TimeMs(1_700_000_000_000);

    fn id(epoch: u64) -> RunId {
        format!("7-0-{epoch}").parse().unwrap()
    }

    /// Attempts that printed 1,000 bytes each, a minute apart, the first one the oldest.
    fn attempts(count: u64) -> tempfile::TempDir {
        let logs = tempfile::tempdir().unwrap();
        for epoch in 1..=count {
            let directory = logs.path().join(id(epoch).to_string());
            let stream = OutputStream::Stdout;
            let mut writer = SegmentWriter::new(directory.clone(), stream, LogLimits::default());
            writer.append(&[b'x'; 1_000], 1);
            let age = Duration::from_secs(60 * (count - epoch + 1));
            for entry in fs::read_dir(&directory).unwrap() {
                let file = fs::File::options().write(true).open(entry.unwrap().path());
                let now = SystemTime::UNIX_EPOCH + Duration::from_millis(NOW.0);
                file.unwrap().set_modified(now - age).unwrap();
            }
        }
        logs
    }

    fn left(logs: &Path) -> Vec<u64> {
        let is_left = |epoch: &u64| logs.join(id(*epoch).to_string()).exists();
        (1..=9).filter(is_left).collect()
    }

    #[test]
    fn the_oldest_go_by_age_by_size_and_by_number() {
        let generous = LogRetention::default();
        let bounds = [
            (
                LogRetention {
                    attempts_max: 2,
                    ..generous
                },
                vec![3, 4],
            ),
            (
                LogRetention {
                    bytes_max: 3_100,
                    ..generous
                },
                vec![2, 3, 4],
            ),
            (
                LogRetention {
                    age_ms_max: 90_000,
                    ..generous
                },
                vec![4],
            ),
            (generous, vec![1, 2, 3, 4]),
        ];
        for (retention, expected) in bounds {
            let logs = attempts(4);
            remove_old(logs.path(), &BTreeSet::new(), &retention, false, NOW).unwrap();
            assert_eq!(left(logs.path()), expected, "{retention:?}");
            for epoch in 1..=4 {
                let is_removed = Removals::of(logs.path()).contains(id(epoch)).unwrap();
                assert_eq!(is_removed, !expected.contains(&epoch), "{epoch}");
            }
        }
    }

    #[test]
    fn an_unreadable_record_does_not_prevent_the_removal_of_other_logs() {
        let logs = attempts(3);
        let of = |epoch| logs.path().join(id(epoch).to_string());
        // A power cut emptied the record of the first attempt.
        fs::write(of(1).join("shipped.json"), "").unwrap();
        let shipped = Shipped {
            stdout: 1_000,
            stderr: 0,
        };
        shipped.write(&of(2)).unwrap();
        // Not a directory.
        fs::write(of(9), "").unwrap();
        let none = LogRetention {
            bytes_max: 0,
            ..LogRetention::default()
        };
        let removed = remove_old(logs.path(), &BTreeSet::new(), &none, true, NOW).unwrap();
        assert_eq!((removed, left(logs.path())), (1, vec![1, 3, 9]));
    }

    #[test]
    fn logs_to_be_shipped_are_kept_up_to_a_limit() {
        let logs = attempts(4);
        let none = LogRetention {
            bytes_max: 0,
            unshipped_bytes_max: 2_100,
            ..LogRetention::default()
        };
        let shipped = Shipped {
            stdout: 1_000,
            stderr: 0,
        };
        shipped.write(&logs.path().join(id(3).to_string())).unwrap();
        let live = BTreeSet::from([id(1)]);
        remove_old(logs.path(), &live, &none, true, NOW).unwrap();
        // The third is shipped; the first still runs; the others are kept up to the limit.
        assert_eq!(left(logs.path()), [1, 2, 4]);
        let tight = LogRetention {
            unshipped_bytes_max: 1_100,
            ..none
        };
        remove_old(logs.path(), &live, &tight, true, NOW).unwrap();
        assert_eq!(left(logs.path()), [1, 4]);
    }

    #[test]
    fn unshipped_segments_are_counted() {
        let logs = attempts(3);
        let none = LogRetention {
            bytes_max: 0,
            unshipped_bytes_max: 0,
            ..LogRetention::default()
        };
        let half = Shipped {
            stdout: 400,
            stderr: 0,
        };
        half.write(&logs.path().join(id(1).to_string())).unwrap();
        let whole = Shipped {
            stdout: 1_000,
            stderr: 0,
        };
        whole.write(&logs.path().join(id(2).to_string())).unwrap();
        let recorder = PrometheusBuilder::new().build_recorder();
        let page = recorder.handle();
        let is_lost = |bytes: u64| {
            let line = format!("muster_worker_log_unshipped_lost_bytes_total {bytes}");
            page.render().lines().any(|it| it == line)
        };
        ::metrics::with_local_recorder(&recorder, || {
            let live = BTreeSet::from([id(3)]);
            remove_old(logs.path(), &live, &none, true, NOW).unwrap();
            assert_eq!(left(logs.path()), [3]);
            assert!(is_lost(600), "{}", page.render());
            // Without shipping nothing counts as lost unshipped.
            remove_old(logs.path(), &BTreeSet::new(), &none, false, NOW).unwrap();
            assert_eq!(left(logs.path()), [0_u64; 0]);
            assert!(is_lost(600), "{}", page.render());
        });
    }
}
