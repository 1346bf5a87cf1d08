//! Choice of preemption victims: by lost work, or by age because no checkpoints are reported.

use muster_simulate::report::RunReport;
use muster_simulate::{JobInformation, Policy, Settings};

use crate::table::{digits, hours, markdown};
use crate::traces::Traces;
use crate::{Failure, Figures, work};

const LOAD: f64 = 1.5;
/// Minutes between two checkpoints.
const INTERVALS: [u64; 3] = [360, 60, 10];
const POLICIES: [Policy; 2] = [Policy::Capacity, Policy::Cells];

pub(super) fn figures(traces: &Traces) -> Result<Figures, Failure> {
    let mut questions = Vec::new();
    for policy in POLICIES {
        for minutes in INTERVALS {
            questions.extend([false, true].map(|known| (policy, minutes, known)));
        }
    }
    let runs = work::all(&questions, |(policy, minutes, known)| {
        let settings = Settings {
            load: LOAD,
            checkpoint_interval_ms: Some(minutes * 60_000),
            job_information: JobInformation {
                checkpoints: *known,
                ..JobInformation::default()
            },
            ..Settings::default()
        };
        work::run(&traces.complete(settings, &[])?, *policy)
    })?;
    let titles = [
        "policy",
        "checkpoint every",
        "by age: preempted",
        "lost GPU-h",
        "JCT mean, h",
        "by lost work: preempted",
        "lost GPU-h",
        "JCT mean, h",
        "lost work saved",
    ];
    let pairs = questions.chunks(2).zip(runs.chunks(2));
    let rows: Vec<Vec<String>> = pairs
        .filter_map(|(questions, runs)| {
            let ([(policy, minutes, _), _], [by_age, by_lost]) = (questions, runs) else {
                return None;
            };
            let mut row = vec![policy.name().to_owned(), format!("{minutes} min")];
            row.extend(cells(by_age));
            row.extend(cells(by_lost));
            let saved = 1.0 - by_lost.all.lost_gpu_hours / by_age.all.lost_gpu_hours;
            row.push(format!("{:.0} %", saved * 100.0));
            Some(row)
        })
        .collect();
    Ok(Figures {
        tables: vec![("preemption", markdown(&titles, &rows))],
        pictures: Vec::new(),
    })
}

fn cells(run: &RunReport) -> [String; 3] {
    let completion_s = run.all.completion.map_or(0.0, |spread| spread.mean_s);
    [
        run.all.preemptions.to_string(),
        digits(run.all.lost_gpu_hours),
        hours(completion_s),
    ]
}
