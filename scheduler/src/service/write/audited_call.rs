//! A recorded call without an answer so far.

use muster_proto::status;
use tonic::{Code, Status};

use crate::audit_log::{AuditLog, Record};
use crate::service::write::UNKNOWN_OUTCOME;

/// A call in progress. It is recorded when it is answered, or else when this is dropped: the caller has gone
/// or no longer waits, and its handler is dropped with it, although a proposal may still take effect.
pub(crate) struct Unanswered<'a> {
    log: &'a AuditLog,
    now_ms: Box<dyn Fn() -> u64 + Send + 'a>,
    /// `None` once it is recorded.
    record: Option<Record>,
}

impl<'a> Unanswered<'a> {
    /// Starts a call; `now_ms` returns the time of its answer.
    pub(crate) fn new(
        log: &'a AuditLog,
        record: Record,
        now_ms: impl Fn() -> u64 + Send + 'a,
    ) -> Self {
        Self {
            log,
            now_ms: Box::new(now_ms),
            record: Some(record),
        }
    }

    /// Records the call, completed with its answer. Waits while the audit log's queue is full.
    pub(crate) async fn answer(mut self, complete: impl FnOnce(Record) -> Record) {
        let record = self.record.take().map(complete);
        self.record = record.map(|record| self.timed(record));
        self.log.record(&mut self.record).await;
    }

    fn timed(&self, record: Record) -> Record {
        Record {
            time_ms: (self.now_ms)(),
            ..record
        }
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let Some(mut record) = self.record.take() else {
            return;
        };
        // A record with an answer was waiting for room.
        if record.code.is_empty() {
            record = self.timed(record.answered_with(Some(&gone())));
        }
        self.log.try_record(record);
    }
}

/// Answer for a caller that has gone.
fn gone() -> Status {
    let message = "the caller has gone: the outcome is unknown";
    status::error(Code::Cancelled, UNKNOWN_OUTCOME, message, &[])
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::config::AuditSettings;

    #[tokio::test]
    async fn a_call_is_audited_once_whether_it_is_answered_or_its_caller_goes_away() {
        let folder = tempfile::tempdir().unwrap();
        let log = AuditLog::open(&AuditSettings::default(), folder.path()).unwrap();
        let begin = |method: &str| {
            let record = Record::of_call(method, "ada", String::new(), None);
            Unanswered::new(&log, record, || 7)
        };
        drop(begin("CancelJob"));
        begin("Block").answer(|it| it.answered_with(None)).await;
        log.sync().await;
        let mut found = Vec::new();
        let mut take = |record: Record| {
            found.push(record);
            true
        };
        log.read_after(0, &mut take).unwrap();
        let [gone, answered] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((&*gone.method, &*gone.code), ("CancelJob", "Cancelled"));
        assert_eq!(gone.reason, UNKNOWN_OUTCOME);
        assert_eq!((&*answered.method, &*answered.code), ("Block", "Ok"));
        assert_eq!(answered.reason, "");
        assert_eq!((gone.time_ms, answered.time_ms), (7, 7));
    }
}
