//! Real faults that nobody tells the scheduler of: what each thing that it does about them is worth.

use muster_simulate::report::HealthFigures;
use muster_simulate::{Care, Policy, Settings};

use super::table::{digits, markdown, percent};
use super::traces::Traces;
use super::{Failure, Figures, work};

const POLICY: Policy = Policy::Capacity;
/// When a rule goes wrong, for how long, and on how many of a hundred hosts.
const ALARM_FROM_MS: u64 = 20 * 86_400_000;
const ALARM_MS: u64 = 86_400_000;
const ALARM_PERCENT: u64 = 60;

/// What is done about faults, and whether a rule goes wrong.
type Case = (Care, bool);

const CASES: [Case; 6] = [
    (Care::Nothing, false),
    (Care::BlockHosts, false),
    (Care::BlockParts, false),
    (Care::Attribute, false),
    (Care::Lemons, false),
    (Care::Lemons, true),
];

const fn name((care, is_alarm): Case) -> &'static str {
    match (care, is_alarm) {
        (Care::Nothing, _) => "nothing",
        (Care::BlockHosts, _) => "hosts are blocked",
        (Care::BlockParts, _) => "GPUs are blocked",
        (Care::Attribute, _) => "and ends are attributed",
        (Care::Lemons, false) => "and lemons are drained: Muster",
        (Care::Lemons, true) => "Muster, and a rule finds 60 % of the hosts ill for a day",
    }
}

pub(super) fn figures(traces: &Traces) -> Result<Figures, Failure> {
    let outages = traces.outages()?;
    let runs = work::all(&CASES, |(care, is_alarm)| {
        let scenario = traces.philly_in_lingjun(Settings::default())?;
        let mut scenario = scenario.in_care(&outages, *care);
        if *is_alarm {
            let span = (ALARM_FROM_MS, ALARM_FROM_MS + ALARM_MS);
            scenario = scenario.with_false_alarm(ALARM_PERCENT, span);
        }
        let run = work::run(&scenario, POLICY)?;
        run.health.ok_or_else(|| "nobody counted health".into())
    })?;
    let titles = [
        "done about faults",
        "tasks killed by faults",
        "jobs ruined",
        "that needed, GPU-h",
        "done in vain, GPU-h",
        "healthy and out, GPU-h",
        "all three",
        "blocks",
        "of them false",
        "out at most",
    ];
    let row = |(case, run): (&Case, &HealthFigures)| {
        vec![
            name(*case).to_owned(),
            run.struck.to_string(),
            run.ruined.to_string(),
            digits(run.ruined_gpu_hours),
            digits(run.lost_gpu_hours),
            digits(run.healthy_idle_gpu_hours),
            digits(run.ruined_gpu_hours + run.lost_gpu_hours + run.healthy_idle_gpu_hours),
            run.blocks.to_string(),
            run.false_blocks.to_string(),
            percent(run.out_share_max),
        ]
    };
    let rows: Vec<Vec<String>> = CASES.iter().zip(&runs).map(row).collect();
    Ok(Figures {
        tables: vec![("health", markdown(&titles, &rows))],
        pictures: Vec::new(),
    })
}
