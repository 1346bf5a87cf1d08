//! Explanation why a job waits.

mod advice;
mod json;

use jiff::Timestamp;
use muster_proto::v1;
use serde::Serialize;
use serde_json::Value;

use crate::output::{Cell, Column, Table, Tone, counted, instant, paint, until};
use crate::view::word::{job_phase, word};

const CLASS_COLUMNS: &[Column] = &[
    Column::new("GPU MODEL"),
    Column::new("ACCEPTABLE"),
    Column::new("HOSTS"),
    Column::new("OUT"),
    Column::new("WITH ROOM"),
    Column::new("GPUS"),
    Column::new("FREE"),
    Column::new("RESERVED"),
    Column::new("HELD"),
    Column::new("OUT"),
];

/// Explanation why a job waits, counted over the hosts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ExplanationView {
    revision: u64,
    phase: String,
    summary: String,
    blocker: Option<Value>,
    remedy: Option<Value>,
    remedy_is_enough: bool,
    cut_short: bool,
    unit: u32,
    units_waiting: u64,
    jobs_ahead: u64,
    jobs_ahead_overall: u64,
    jobs_ahead_overall_is_exact: bool,
    expected_start: Option<StartView>,
    host_classes: Vec<ClassView>,
    cells: Vec<CellsView>,
    cells_missing: Vec<String>,
    #[serde(skip)]
    remedy_wire: Option<v1::Remedy>,
}

/// Expected start of the unit.
#[derive(Clone, Debug, Serialize)]
struct StartView {
    at: String,
    basis: String,
    #[serde(skip)]
    at_ms: u64,
}

/// Cells of one kind of a virtual cluster.
#[derive(Clone, Debug, Serialize)]
struct CellsView {
    kind: String,
    guaranteed: u32,
    bound: u32,
    free: u64,
    in_use: u64,
    unhealthy: u64,
}

/// Hosts of one GPU model.
#[derive(Clone, Debug, Serialize)]
struct ClassView {
    gpu_model: String,
    acceptable: bool,
    hosts: u32,
    hosts_not_accepting: u32,
    hosts_with_room: u32,
    gpus: u32,
    gpus_free: u32,
    gpus_reserved: u32,
    gpus_held: u32,
    gpus_out: u32,
}

impl From<v1::ExplainJobResponse> for ExplanationView {
    fn from(answer: v1::ExplainJobResponse) -> Self {
        Self {
            revision: answer.revision,
            phase: job_phase(answer.phase()),
            summary: answer.summary,
            blocker: answer.blocker.as_ref().and_then(json::blocker),
            remedy: answer.remedy.as_ref().and_then(json::remedy),
            remedy_is_enough: answer.remedy_is_enough,
            cut_short: answer.cut_short,
            unit: answer.unit,
            units_waiting: answer.units_waiting,
            jobs_ahead: answer.jobs_ahead,
            jobs_ahead_overall: answer.jobs_ahead_overall,
            jobs_ahead_overall_is_exact: answer.jobs_ahead_overall_is_exact,
            expected_start: answer.expected_start.as_ref().map(StartView::from),
            host_classes: answer.classes.into_iter().map(ClassView::from).collect(),
            cells: answer.cells.into_iter().map(CellsView::from).collect(),
            cells_missing: answer.cells_missing,
            remedy_wire: answer.remedy,
        }
    }
}

impl From<&v1::ExpectedStart> for StartView {
    fn from(start: &v1::ExpectedStart) -> Self {
        Self {
            at: instant(start.at_ms),
            basis: word(start.basis().as_str_name(), "BASIS_"),
            at_ms: start.at_ms,
        }
    }
}

impl From<v1::CellsLeft> for CellsView {
    fn from(left: v1::CellsLeft) -> Self {
        Self {
            kind: left.kind,
            guaranteed: left.guaranteed,
            bound: left.bound,
            free: left.free,
            in_use: left.in_use,
            unhealthy: left.unhealthy,
        }
    }
}

impl From<v1::HostClass> for ClassView {
    fn from(class: v1::HostClass) -> Self {
        Self {
            gpu_model: class.gpu_model,
            acceptable: class.acceptable,
            hosts: class.hosts,
            hosts_not_accepting: class.hosts_not_accepting,
            hosts_with_room: class.hosts_with_room,
            gpus: class.gpus,
            gpus_free: class.gpus_free,
            gpus_reserved: class.gpus_reserved,
            gpus_held: class.gpus_held,
            gpus_out: class.gpus_out,
        }
    }
}

impl ExplanationView {
    /// Summary in one line, for progress notes.
    pub(crate) fn summary(&self) -> &str {
        &self.summary
    }

    /// Text for a terminal.
    pub(crate) fn render(&self, now: Timestamp) -> String {
        let summary = printable(&self.summary);
        let mut lines = vec![match self.blocker {
            Some(_) => paint(&summary, Tone::Waiting),
            None => summary,
        }];
        if self.units_waiting > 0 {
            lines.extend(self.to_run_it(now));
            lines.push(self.position());
            lines.push(self.start(now));
        }
        if self.cut_short {
            lines.push("search timed out: a smaller change might suffice".to_owned());
        }
        lines.extend(self.cells.iter().map(CellsView::line));
        let missing = self.cells_missing.iter();
        lines.extend(missing.map(|sum| format!("cells missing in the whole cluster: {sum}")));
        let mut text = lines.join("\n");
        text.push('\n');
        if self.host_classes.is_empty() {
            return text;
        }
        let mut table = Table::new(CLASS_COLUMNS, false);
        for class in &self.host_classes {
            table.push(class.cells());
        }
        text.push('\n');
        text.push_str(&table.render(true));
        text
    }

    fn to_run_it(&self, now: Timestamp) -> Option<String> {
        let remedy = advice::remedy(self.remedy_wire.as_ref()?, now)?;
        let remedy = printable(&remedy);
        Some(match self.remedy_is_enough {
            true => format!("to run it: {remedy}"),
            false => format!("to run it: {remedy} (more may be needed)"),
        })
    }

    fn position(&self) -> String {
        let bound = if self.jobs_ahead_overall_is_exact {
            ""
        } else {
            "at least "
        };
        format!(
            "position: {} behind {} of its queue, {bound}{} in all",
            counted(self.units_waiting, "waiting unit"),
            counted(self.jobs_ahead, "job"),
            self.jobs_ahead_overall
        )
    }

    fn start(&self, now: Timestamp) -> String {
        let Some(start) = &self.expected_start else {
            return match self.cut_short {
                true => "expected start: not found before the search timed out",
                false => "expected start: unknown",
            }
            .to_owned();
        };
        let at = until(now, start.at_ms);
        let why = match start.basis.as_str() {
            "free" => "resources are free",
            "reserved" => "reserved",
            "told" => "from time limits and usual run times",
            _ => "estimated from the age of running work",
        };
        format!("expected start: {at} ({why})")
    }
}

/// Replaces control characters, so that no name can forge output.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

impl CellsView {
    fn line(&self) -> String {
        format!(
            "cells of kind {}: {} of {} bound; unbound: {} free, {} in use, {} unhealthy",
            self.kind, self.bound, self.guaranteed, self.free, self.in_use, self.unhealthy
        )
    }
}

impl ClassView {
    fn cells(&self) -> Vec<Cell> {
        let model = if self.gpu_model.is_empty() {
            "(no GPU)"
        } else {
            &self.gpu_model
        };
        let counts = [
            self.hosts,
            self.hosts_not_accepting,
            self.hosts_with_room,
            self.gpus,
            self.gpus_free,
            self.gpus_reserved,
            self.gpus_held,
            self.gpus_out,
        ];
        let head = [
            model.into(),
            if self.acceptable { "yes" } else { "no" }.into(),
        ];
        let counts = counts.iter().map(|count| Cell::from(count.to_string()));
        head.into_iter().chain(counts).collect()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// The user documentation.
    const DOCUMENT: &str = include_str!("../../../../docs/explain.md");
    const NOW_MS: u64 = 1_704_067_200_000;

    fn answer() -> v1::ExplainJobResponse {
        let within = v1::job_change::WithinLevel {
            group: None,
            level: "pod".to_owned(),
            required: true,
        };
        let change = v1::JobChange {
            kind: Some(v1::job_change::Kind::Within(within)),
        };
        v1::ExplainJobResponse {
            summary: "8 GPUs have to lie within one rack; the best, p2/r3, has 7 free and lacks 1 (20 are free in all)"
                .to_owned(),
            blocker: Some(v1::Blocker {
                kind: Some(v1::blocker::Kind::Topology(v1::blocker::Topology {
                    level: "rack".to_owned(),
                    need_gpus: 8,
                    best: Some("p2/r3".to_owned()),
                    best_free_gpus: 7,
                    free_gpus: 20,
                    ..Default::default()
                })),
            }),
            units_waiting: 1,
            remedy: Some(v1::Remedy {
                kind: Some(v1::remedy::Kind::Change(change)),
            }),
            remedy_is_enough: true,
            jobs_ahead_overall_is_exact: true,
            expected_start: Some(v1::ExpectedStart {
                at_ms: NOW_MS + 3_600_000,
                basis: v1::expected_start::Basis::Told.into(),
            }),
            classes: vec![v1::HostClass {
                gpu_model: "A".to_owned(),
                acceptable: true,
                hosts: 6,
                hosts_with_room: 6,
                gpus: 24,
                gpus_free: 20,
                gpus_held: 4,
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    #[test]
    fn people_read_what_the_documentation_shows() {
        let now = Timestamp::from_millisecond(NOW_MS.try_into().unwrap()).unwrap();
        let text = ExplanationView::from(answer()).render(now);
        let text = anstream::adapter::strip_str(&text).to_string();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let shown = lines.join("\n");
        assert!(DOCUMENT.contains(&shown), "docs/explain.md lacks\n{shown}");
    }

    #[test]
    fn people_read_that_time_ran_out() {
        let cut = v1::ExplainJobResponse {
            expected_start: None,
            cut_short: true,
            ..answer()
        };
        let now = Timestamp::from_millisecond(NOW_MS.try_into().unwrap()).unwrap();
        let text = ExplanationView::from(cut).render(now);
        assert!(
            text.contains("expected start: not found before the search timed out"),
            "{text}"
        );
        assert!(text.contains("a smaller change might suffice"), "{text}");
    }

    #[test]
    fn programs_read_the_kinds_and_their_figures() {
        let view = serde_json::to_value(ExplanationView::from(answer())).unwrap();
        assert_eq!(view["blocker"]["kind"], "topology");
        assert_eq!(view["blocker"]["best_free_gpus"], 7);
        assert_eq!(view["remedy"]["kind"], "within");
        assert_eq!(view["expected_start"]["basis"], "told");
    }
}
