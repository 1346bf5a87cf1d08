//! Accounting of a job's GPU time.

use muster_proto::v1;
use serde::Serialize;

/// Milliseconds per hour.
const HOUR_MS: f64 = 3_600_000.0;

/// GPU time by use, in milliseconds times GPUs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct LedgerView {
    kept_gpu_ms: u64,
    halted_gpu_ms: u64,
    first: LossView,
    preempt: LossView,
    infra: LossView,
    user: LossView,
    admin: LossView,
}

/// Cost of one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct LossView {
    queue_gpu_ms: u64,
    restart_gpu_ms: u64,
    work_gpu_ms: u64,
}

impl From<v1::Ledger> for LedgerView {
    fn from(ledger: v1::Ledger) -> Self {
        let loss = |loss: Option<v1::Loss>| {
            let loss = loss.unwrap_or_default();
            LossView {
                queue_gpu_ms: loss.queue_gpu_ms,
                restart_gpu_ms: loss.restart_gpu_ms,
                work_gpu_ms: loss.work_gpu_ms,
            }
        };
        Self {
            kept_gpu_ms: ledger.kept_gpu_ms,
            halted_gpu_ms: ledger.halted_gpu_ms,
            first: loss(ledger.first),
            preempt: loss(ledger.preempt),
            infra: loss(ledger.infra),
            user: loss(ledger.user),
            admin: loss(ledger.admin),
        }
    }
}

impl LedgerView {
    /// One line for each cause with a cost: `infra`, `0.3 queued, 0.1 restarting, 2.0 lost`; and one for the
    /// time paused.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let causes = [
            ("first start", self.first),
            ("preempt", self.preempt),
            ("infra", self.infra),
            ("user", self.user),
            ("admin", self.admin),
        ];
        let costly = causes.into_iter();
        let costly = costly.filter(|(_, loss)| *loss != LossView::default());
        let still = (self.halted_gpu_ms > 0).then(|| {
            let text = format!("{} paused", hours(self.halted_gpu_ms));
            ("suspended", text)
        });
        let costly = costly.map(|(cause, loss)| {
            let text = format!(
                "{} queued, {} starting, {} of work lost",
                hours(loss.queue_gpu_ms),
                hours(loss.restart_gpu_ms),
                hours(loss.work_gpu_ms)
            );
            (cause, text)
        });
        costly.chain(still).collect()
    }

    /// Kept work, as text.
    pub(crate) fn kept(&self) -> String {
        hours(self.kept_gpu_ms)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "two decimals of an hour are shown"
)]
fn hours(gpu_ms: u64) -> String {
    format!("{:.2} GPU-h", gpu_ms as f64 / HOUR_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_causes_that_cost_something_have_a_line() {
        let infra = v1::Loss {
            queue_gpu_ms: 3_600_000,
            restart_gpu_ms: 0,
            work_gpu_ms: 9_000_000,
        };
        let ledger = LedgerView::from(v1::Ledger {
            kept_gpu_ms: 36_000_000,
            infra: Some(infra),
            ..v1::Ledger::default()
        });
        let text = "1.00 GPU-h queued, 0.00 GPU-h starting, 2.50 GPU-h of work lost";
        assert_eq!(ledger.lines(), [("infra", text.to_owned())]);
        assert_eq!(ledger.kept(), "10.00 GPU-h");
    }

    #[test]
    fn standing_still_has_a_line_of_its_own() {
        let ledger = LedgerView::from(v1::Ledger {
            halted_gpu_ms: 5_400_000,
            ..v1::Ledger::default()
        });
        let text = "1.50 GPU-h paused".to_owned();
        assert_eq!(ledger.lines(), [("suspended", text)]);
    }
}
