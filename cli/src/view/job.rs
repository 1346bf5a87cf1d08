//! A job in a list.

use jiff::Timestamp;
use muster_documents::{Job, Ledger, Loss, UnitCounts, UserRequest};

use crate::output::{Cell, Column, Row, Tone, ago, span};
use crate::view::phase::{counted, phase_tone};

/// Milliseconds per hour.
const HOUR_MS: f64 = 3_600_000.0;

/// The counts that are not zero: `3 running, 1 waiting`.
fn counts_text(units: &UnitCounts) -> String {
    counted(&[
        (units.running, "running"),
        (units.placed, "placed"),
        (units.stopping, "stopping"),
        (units.waiting, "waiting"),
        (units.succeeded, "succeeded"),
        (units.failed, "failed"),
        (units.cancelled, "cancelled"),
    ])
}

/// The displayed phase: a suspended job is suspended in any phase.
fn shown_phase(job: &Job) -> Cell {
    match job.suspension {
        Some(_) => Cell::toned("suspended", Tone::Waiting),
        None => Cell::toned(job.phase.as_str(), phase_tone(job.phase.as_str())),
    }
}

/// GPU time by use, as lines of `key value`.
pub(super) fn accounts(job: &Job) -> Vec<(&'static str, String)> {
    let (Some(ledger), Some(permille)) = (&job.ledger, job.kept_permille) else {
        return Vec::new();
    };
    let (whole, tenth) = (permille / 10, permille % 10);
    let kept = format!(
        "{whole}.{tenth} % of its time is kept work ({})",
        hours(ledger.kept_gpu_ms)
    );
    let spent = ledger_lines(ledger).into_iter();
    let spent = spent.map(|(cause, text)| ("Spent", format!("{cause}: {text}")));
    std::iter::once(("ETTR", kept)).chain(spent).collect()
}

/// One line for each cause with a cost: `infra`, `0.3 queued, 0.1 restarting, 2.0 lost`; and one for the
/// time paused.
fn ledger_lines(ledger: &Ledger) -> Vec<(&'static str, String)> {
    let causes = [
        ("first start", &ledger.first),
        ("preempt", &ledger.preempt),
        ("infra", &ledger.infra),
        ("user", &ledger.user),
        ("admin", &ledger.admin),
    ];
    let is_costly = |loss: &Loss| loss.queue_gpu_ms + loss.restart_gpu_ms + loss.work_gpu_ms > 0;
    let costly = causes.into_iter().filter(|(_, loss)| is_costly(loss));
    let costly = costly.map(|(cause, loss)| {
        let text = format!(
            "{} queued, {} starting, {} of work lost",
            hours(loss.queue_gpu_ms),
            hours(loss.restart_gpu_ms),
            hours(loss.work_gpu_ms)
        );
        (cause, text)
    });
    let paused_ms = ledger.paused_gpu_ms;
    let paused = (paused_ms > 0).then(|| ("suspended", format!("{} paused", hours(paused_ms))));
    costly.chain(paused).collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "two decimals of an hour are shown"
)]
fn hours(gpu_ms: u64) -> String {
    format!("{:.2} GPU-h", gpu_ms as f64 / HOUR_MS)
}

/// Lines of `key value` for a terminal.
pub(super) fn facts(job: &Job, now: Timestamp) -> Vec<(&'static str, Cell)> {
    let plain = |text: String| Cell::from(text);
    let shape = if job.gang {
        "one gang"
    } else {
        "independent of each other"
    };
    let mut facts = vec![
        ("Job", plain(job.id.to_string())),
        ("Name", plain(job.name.clone())),
        ("User", plain(job.user.clone())),
        (
            "Queue",
            plain(format!("{}, priority {}", job.queue, job.priority)),
        ),
        ("Phase", shown_phase(job)),
        ("Tasks", plain(format!("{}, {shape}", job.tasks))),
        ("Units", plain(counts_text(&job.units))),
        (
            "GPUs",
            plain(format!(
                "{} held of {} requested",
                job.gpus_held, job.gpus_requested
            )),
        ),
        (
            "Submitted",
            plain(format!(
                "{} ({})",
                job.submitted_at,
                ago(now, job.submitted_at)
            )),
        ),
    ];
    if let Some(pipeline) = &job.pipeline {
        let text = format!("{} ({})", pipeline.id, pipeline.name);
        facts.push(("Pipeline", plain(text)));
    }
    if let Some(at) = job.finished_at {
        facts.push(("Finished", plain(format!("{at} ({})", ago(now, at)))));
    }
    if !job.finish_reason.is_empty() {
        facts.push(("Reason", Cell::toned(&*job.finish_reason, Tone::Bad)));
    }
    if let Some(cancel) = &job.cancel {
        let reason = if cancel.reason.is_empty() {
            "no reason given"
        } else {
            &cancel.reason
        };
        facts.push((
            "Cancelled",
            plain(format!("by {}: {reason}", cancel.author)),
        ));
    }
    if let Some(UserRequest { author, reason, at }) = &job.suspension {
        facts.push(("Suspended", plain(format!("at {at} by {author}: {reason}"))));
    }
    facts
}

impl Row for Job {
    const COLUMNS: &'static [Column] = &[
        Column::new("ID"),
        Column::new("NAME"),
        Column::new("USER"),
        Column::new("QUEUE"),
        Column::wide("PRIORITY"),
        Column::new("PHASE"),
        Column::new("TASKS"),
        Column::new("GPUS"),
        Column::new("SUBMITTED"),
        Column::wide("TOOK"),
        Column::wide("UNITS"),
        Column::new("REASON"),
    ];

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let took = self
            .finished_at
            .map(|finished| span(finished.ms.saturating_sub(self.submitted_at.ms)));
        vec![
            self.id.to_string().into(),
            (*self.name).into(),
            (*self.user).into(),
            (*self.queue).into(),
            self.priority.to_string().into(),
            shown_phase(self),
            format!("{}{}", self.tasks, if self.gang { " gang" } else { "" }).into(),
            format!("{}/{}", self.gpus_held, self.gpus_requested).into(),
            Cell::toned(ago(now, self.submitted_at), Tone::Faint),
            took.unwrap_or_default().into(),
            counts_text(&self.units).into(),
            (*self.finish_reason).into(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use muster_proto::v1;

    use super::*;

    fn lines(ledger: v1::Ledger) -> Vec<(&'static str, String)> {
        ledger_lines(&Ledger::from(ledger))
    }

    #[test]
    fn only_causes_with_lost_gpu_time_have_a_line() {
        let infra = v1::Loss {
            queue_gpu_ms: 3_600_000,
            restart_gpu_ms: 0,
            work_gpu_ms: 9_000_000,
        };
        let ledger = v1::Ledger {
            infra: Some(infra),
            ..v1::Ledger::default()
        };
        let text = "1.00 GPU-h queued, 0.00 GPU-h starting, 2.50 GPU-h of work lost";
        assert_eq!(lines(ledger), [("infra", text.to_owned())]);
    }

    #[test]
    fn paused_time_has_a_line_of_its_own() {
        let ledger = v1::Ledger {
            paused_gpu_ms: 5_400_000,
            ..v1::Ledger::default()
        };
        let text = "1.50 GPU-h paused".to_owned();
        assert_eq!(lines(ledger), [("suspended", text)]);
    }
}
