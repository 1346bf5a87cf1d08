//! Backfill, by the information available about run times.

use std::num::NonZeroU64;

use muster_simulate::report::RunReport;
use muster_simulate::{JobInformation, Policy, Rules, Settings, TimeLimits};

use crate::table::{hours, markdown};
use crate::traces::Traces;
use crate::{Failure, Figures, work};

/// Jobs arrive twice as fast as in the trace.
const LOAD: f64 = 2.0;
/// Users without better knowledge request multiples of this time limit, in milliseconds.
const STEP_MS: NonZeroU64 = NonZeroU64::new(6 * 3_600_000).expect("the literal is not 0");

/// A way to run one queue.
struct Way {
    name: &'static str,
    strict: bool,
    limits: TimeLimits,
    alike: bool,
}

const WAYS: [Way; 6] = [
    Way {
        name: "none: strict order",
        strict: true,
        limits: TimeLimits::None,
        alike: false,
    },
    Way {
        name: "backfill, nothing known",
        strict: false,
        limits: TimeLimits::None,
        alike: false,
    },
    Way {
        name: "backfill, estimated by size",
        strict: false,
        limits: TimeLimits::None,
        alike: true,
    },
    Way {
        name: "backfill, limits in steps of 6 h",
        strict: false,
        limits: TimeLimits::RoundedUp { step_ms: STEP_MS },
        alike: false,
    },
    Way {
        name: "backfill, both",
        strict: false,
        limits: TimeLimits::RoundedUp { step_ms: STEP_MS },
        alike: true,
    },
    Way {
        name: "backfill, exact limits",
        strict: false,
        limits: TimeLimits::Exact,
        alike: false,
    },
];

pub(super) fn figures(traces: &Traces) -> Result<Figures, Failure> {
    let runs = work::all(&WAYS, |way| {
        let settings = Settings {
            load: LOAD,
            rules: Rules {
                strict: way.strict,
                ..Rules::default()
            },
            job_information: JobInformation {
                limits: way.limits,
                alike: way.alike,
                ..JobInformation::default()
            },
            ..Settings::default()
        };
        work::run(&traces.complete(settings, &[])?, Policy::Backfill)
    })?;
    let titles = [
        "backfill",
        "delay mean, h",
        "p99",
        "1 GPU: mean, h",
        "more than 8 GPUs: mean, h",
        "p99",
        "max",
        "makespan, d",
    ];
    let mut rows: Vec<Vec<String>> = WAYS
        .iter()
        .zip(&runs)
        .map(|(way, run)| row(way, run))
        .collect();
    if let Some(run) = runs.first() {
        let bounds = run.bounds;
        let least = hours(bounds.completion_mean_s - bounds.run_mean_s);
        let makespan = format!("{:.1}", bounds.makespan_s / 86_400.0);
        let mut bound = vec!["*bound for any policy*".to_owned(), least];
        bound.extend(["-", "-", "-", "-", "-"].map(str::to_owned));
        bound.push(makespan);
        rows.push(bound);
    }
    Ok(Figures {
        tables: vec![("backfill", markdown(&titles, &rows))],
        pictures: Vec::new(),
    })
}

fn row(way: &Way, run: &RunReport) -> Vec<String> {
    let of_size = |size: &str| {
        let mut groups = run.by_size.iter();
        let group = groups.find(|group| group.name == size);
        group.and_then(|group| group.jobs.delay)
    };
    let mut row = vec![way.name.to_owned()];
    let all = run
        .all
        .delay
        .map(|delay| [delay.mean_s, delay.p99_s].map(hours));
    row.extend(all.into_iter().flatten());
    row.extend(of_size("1").map(|delay| hours(delay.mean_s)));
    let large = of_size("9-64").map(|delay| [delay.mean_s, delay.p99_s, delay.max_s].map(hours));
    row.extend(large.into_iter().flatten());
    row.push(format!("{:.1}", run.cluster.makespan_s / 86_400.0));
    row
}
