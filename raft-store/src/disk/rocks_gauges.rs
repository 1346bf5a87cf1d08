//! What the log's database says of itself, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rocksdb::DB;
use tokio::time::Instant;

use super::rocks::LOG;
use crate::telemetry;

/// Pause between two readings: each takes RocksDB's lock for a moment.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads the database's properties now and then.
#[derive(Debug)]
pub(super) struct DatabaseGauges {
    began: Instant,
    /// Milliseconds after `began` from which they are read again.
    due_ms: AtomicU64,
}

impl Default for DatabaseGauges {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            due_ms: AtomicU64::new(0),
        }
    }
}

impl DatabaseGauges {
    /// Reads them, unless that was a moment ago. What cannot be read keeps its last value.
    pub(super) fn read(&self, database: &DB) {
        let now = self.began.elapsed();
        if now < Duration::from_millis(self.due_ms.load(Ordering::Relaxed)) {
            return;
        }
        let due = (now + PAUSE).as_millis();
        self.due_ms
            .store(u64::try_from(due).unwrap_or(u64::MAX), Ordering::Relaxed);
        let Some(family) = database.cf_handle(LOG) else {
            return;
        };
        for (property, gauge, _) in telemetry::DATABASE {
            match database.property_int_value_cf(family, property) {
                Ok(Some(value)) => telemetry::database(gauge, value),
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, property, "a property of the database could not be read")
                }
            }
        }
    }
}
