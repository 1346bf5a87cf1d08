//! Defragmentation: moves that make contiguous room, on and off.

use muster_simulate::report::RunReport;
use muster_simulate::{Policy, Rules, Settings};

use crate::table::{digits, hours, markdown};
use crate::traces::Traces;
use crate::{Failure, Figures, work};

const LOADS: [f64; 2] = [1.0, 1.5];
const POLICIES: [Policy; 2] = [Policy::Backfill, Policy::Capacity];
/// Minutes between two checkpoints.
const INTERVAL_MINUTES: u64 = 10;

pub(super) fn figures(traces: &Traces) -> Result<Figures, Failure> {
    let mut questions = Vec::new();
    for policy in POLICIES {
        for load in LOADS {
            questions.extend([false, true].map(|moves| (policy, load, moves)));
        }
    }
    let runs = work::all(&questions, |(policy, load, moves)| {
        let settings = Settings {
            load: *load,
            checkpoint_interval_ms: Some(INTERVAL_MINUTES * 60_000),
            rules: Rules {
                defragment: *moves,
                ..Rules::default()
            },
            ..Settings::default()
        };
        work::run(&traces.complete(settings, &[])?, *policy)
    })?;
    let titles = [
        "policy",
        "load",
        "moves",
        "units moved",
        "delay mean, h",
        "8 GPUs: mean, h",
        "more than 8: mean, h",
        "p99",
        "JCT mean, h",
        "preempted",
        "lost GPU-h",
        "idle GPUs on hosts in use",
    ];
    let rows = questions.iter().zip(&runs);
    let rows = rows.map(|((policy, load, moves), run)| row(*policy, *load, *moves, run));
    let rows = rows.collect::<Vec<_>>();
    Ok(Figures {
        tables: vec![("defragmentation", markdown(&titles, &rows))],
        pictures: Vec::new(),
    })
}

fn row(policy: Policy, load: f64, moves: bool, run: &RunReport) -> Vec<String> {
    let of_size = |size: &str| {
        let mut groups = run.by_size.iter();
        let group = groups.find(|group| group.name == size);
        group.and_then(|group| group.jobs.delay)
    };
    let mean = |size: &str| of_size(size).map_or(0.0, |delay| delay.mean_s);
    let gangs_p99_s = of_size("9-64").map_or(0.0, |delay| delay.p99_s);
    let fragmented = run.cluster.fragmentation_whole_host.unwrap_or_default();
    vec![
        policy.name().to_owned(),
        format!("{load:.1}"),
        if moves { "on" } else { "off" }.to_owned(),
        run.all.moves.to_string(),
        hours(run.all.delay.map_or(0.0, |delay| delay.mean_s)),
        hours(mean("5-8")),
        hours(mean("9-64")),
        hours(gangs_p99_s),
        hours(run.all.completion.map_or(0.0, |spread| spread.mean_s)),
        run.all.preemptions.to_string(),
        digits(run.all.lost_gpu_hours),
        format!("{:.0} %", fragmented * 100.0),
    ]
}
