//! Explanation why a job waits.

mod advice;

use jiff::Timestamp;
use muster_documents::Explanation;
use muster_documents::explanation::{CellsLeft, HostClass, StartBasis};

use crate::output::{Cell, Column, Table, Tone, counted, paint, until};

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

/// Text for a terminal.
pub(crate) fn render(explanation: &Explanation, now: Timestamp) -> String {
    let summary = printable(&explanation.summary);
    let mut lines = vec![match explanation.blocker {
        Some(_) => paint(&summary, Tone::Waiting),
        None => summary,
    }];
    if explanation.units_waiting > 0 {
        lines.extend(to_run_it(explanation, now));
        lines.push(position(explanation));
        lines.push(start(explanation, now));
    }
    if explanation.search_timed_out {
        lines.push("search timed out: a smaller change might suffice".to_owned());
    }
    lines.extend(explanation.cells.iter().map(cells_line));
    let missing = explanation.cells_missing.iter();
    lines.extend(missing.map(|sum| format!("cells missing in the whole cluster: {sum}")));
    let mut text = lines.join("\n");
    text.push('\n');
    if explanation.host_classes.is_empty() {
        return text;
    }
    let mut table = Table::new(CLASS_COLUMNS, false);
    for class in &explanation.host_classes {
        table.push(class_cells(class));
    }
    text.push('\n');
    text.push_str(&table.render(true));
    text
}

fn to_run_it(explanation: &Explanation, now: Timestamp) -> Option<String> {
    let remedy = advice::remedy(explanation.remedy.as_ref()?, now)?;
    let remedy = printable(&remedy);
    Some(match explanation.remedy_is_enough {
        true => format!("to run it: {remedy}"),
        false => format!("to run it: {remedy} (more may be needed)"),
    })
}

fn position(explanation: &Explanation) -> String {
    let bound = if explanation.jobs_ahead_overall_is_exact {
        ""
    } else {
        "at least "
    };
    format!(
        "position: {} behind {} of its queue, {bound}{} in all",
        counted(explanation.units_waiting, "waiting unit"),
        counted(explanation.jobs_ahead, "job"),
        explanation.jobs_ahead_overall
    )
}

fn start(explanation: &Explanation, now: Timestamp) -> String {
    let Some(start) = &explanation.expected_start else {
        return match explanation.search_timed_out {
            true => "expected start: not found before the search timed out",
            false => "expected start: unknown",
        }
        .to_owned();
    };
    let at = until(now, start.at);
    let why = match start.basis {
        StartBasis::Free => "resources are free",
        StartBasis::Reserved => "reserved",
        StartBasis::Known => "from time limits and usual run times",
        StartBasis::Estimated | StartBasis::Unknown => "estimated from the age of running work",
    };
    format!("expected start: {at} ({why})")
}

/// Replaces control characters, so that no name can forge output.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

fn cells_line(cells: &CellsLeft) -> String {
    format!(
        "cells of kind {}: {} of {} bound; unbound: {} free, {} in use, {} unhealthy",
        cells.kind, cells.bound, cells.guaranteed, cells.free, cells.in_use, cells.unhealthy
    )
}

fn class_cells(class: &HostClass) -> Vec<Cell> {
    let model = if class.gpu_model.is_empty() {
        "(no GPU)"
    } else {
        &class.gpu_model
    };
    let counts = [
        class.hosts,
        class.hosts_not_accepting,
        class.hosts_with_room,
        class.gpus,
        class.gpus_free,
        class.gpus_reserved,
        class.gpus_held,
        class.gpus_out,
    ];
    let head = [
        model.into(),
        if class.acceptable { "yes" } else { "no" }.into(),
    ];
    let counts = counts.iter().map(|count| Cell::from(count.to_string()));
    head.into_iter().chain(counts).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_proto::v1;

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
                basis: v1::expected_start::Basis::Known.into(),
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
        let text = render(&Explanation::from(answer()), now);
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
        let text = render(&Explanation::from(cut), now);
        assert!(
            text.contains("expected start: not found before the search timed out"),
            "{text}"
        );
        assert!(text.contains("a smaller change might suffice"), "{text}");
    }
}
