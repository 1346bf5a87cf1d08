//! Real host outages: lost work by checkpoint interval.

use muster_simulate::{Policy, Settings};
use muster_text::{Line, Plot};

use crate::table::{digits, hours, markdown};
use crate::traces::Traces;
use crate::{Failure, Figures, work};

const POLICY: Policy = Policy::Cells;
/// Minutes between two checkpoints; `None`: a stopped job restarts from the beginning.
const INTERVALS: [Option<u64>; 5] = [None, Some(24 * 60), Some(6 * 60), Some(60), Some(10)];

pub(super) fn figures(traces: &Traces) -> Result<Figures, Failure> {
    let outages = traces.outages()?;
    let runs = work::all(&INTERVALS, |minutes| {
        let settings = Settings {
            checkpoint_interval_ms: minutes.map(|minutes| minutes * 60_000),
            ..Settings::default()
        };
        work::run(&traces.complete(settings, &outages)?, POLICY)
    })?;
    let titles = [
        "checkpoint every",
        "stopped by faults",
        "preempted",
        "lost GPU-h",
        "of the work done",
        "JCT mean, h",
        "makespan, d",
    ];
    let mut rows = Vec::new();
    let mut points = Vec::new();
    for (minutes, run) in INTERVALS.into_iter().zip(&runs) {
        let lost = run.all.lost_gpu_hours;
        let name = minutes.map_or_else(|| "never".to_owned(), |minutes| format!("{minutes} min"));
        rows.push(vec![
            name,
            run.all.interruptions.to_string(),
            run.all.preemptions.to_string(),
            digits(lost),
            format!("{:.2} %", lost / run.all.done_gpu_hours * 100.0),
            hours(run.all.completion.map_or(0.0, |spread| spread.mean_s)),
            digits(run.cluster.makespan_s / 86_400.0),
        ]);
        let hours = minutes.and_then(|minutes| u32::try_from(minutes).ok());
        points.extend(hours.map(|minutes| (f64::from(minutes) / 60.0, lost)));
    }
    points.reverse();
    let plot = Plot {
        x_label: "hours between two checkpoints".to_owned(),
        y_label: "lost GPU-hours".to_owned(),
        x_from: 0.0,
        lines: vec![Line {
            name: "lost".to_owned(),
            points,
        }],
    };
    Ok(Figures {
        tables: vec![("faults", markdown(&titles, &rows))],
        pictures: vec![("faults", plot.draw())],
    })
}
