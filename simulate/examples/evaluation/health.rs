//! Real faults that are not reported to the scheduler: the benefit of each of its countermeasures.

use muster_simulate::report::HealthFigures;
use muster_simulate::{HealthFeatures, JobInformation, Policy, Settings};

use crate::table::{digits, markdown, of_several, percent};
use crate::traces::Traces;
use crate::{Failure, Figures, work};

const POLICY: Policy = Policy::Capacity;
/// Start of the false alarm; its duration and the percentage of affected hosts follow.
const ALARM_FROM_MS: u64 = 20 * 86_400_000;
const ALARM_MS: u64 = 86_400_000;
const ALARM_PERCENT: u64 = 60;
/// Seeds of the random effects of faults, so that a property of a single run is not taken for an effect.
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

/// Countermeasures of a case.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    features: HealthFeatures,
    /// Whether a rule raises a false alarm.
    is_alarm: bool,
    /// Whether no job commits a checkpoint, so that work stays until its end where a rule drains.
    stays: bool,
}

const fn case(name: &'static str, features: HealthFeatures) -> Case {
    Case {
        name,
        features,
        is_alarm: false,
        stays: false,
    }
}

const MUSTER: Case = case("and lemons are drained: Muster", HealthFeatures::Lemons);

const CASES: [Case; 8] = [
    case("nothing", HealthFeatures::Nothing),
    case("hosts are blocked", HealthFeatures::BlockHosts),
    case("GPUs are blocked", HealthFeatures::BlockParts),
    case("and ends are attributed", HealthFeatures::Attribute),
    MUSTER,
    Case {
        name: "Muster, but work stays until its end",
        stays: true,
        ..MUSTER
    },
    Case {
        name: "Muster, and a rule finds 60 % of the hosts faulty for a day",
        is_alarm: true,
        ..MUSTER
    },
    Case {
        name: "the same, but work stays until its end",
        is_alarm: true,
        stays: true,
        ..MUSTER
    },
];

/// A column: its title, how its value is taken from a run, and how it is shown.
type Column<T> = (&'static str, fn(&T) -> f64, fn(f64) -> String);

const COLUMNS: [Column<HealthFigures>; 9] = [
    ("tasks killed by faults", |run| count(run.struck), whole),
    ("jobs ruined", |run| count(run.ruined), whole),
    ("that needed, GPU-h", |run| run.ruined_gpu_hours, digits),
    ("lost work, GPU-h", |run| run.lost_gpu_hours, digits),
    (
        "healthy and out, GPU-h",
        |run| run.healthy_idle_gpu_hours,
        digits,
    ),
    ("all three", all_three, digits),
    ("blocks", |run| count(run.blocks), whole),
    ("of them false", |run| count(run.false_blocks), whole),
    (
        "out at most",
        |run| run.out_share_max.unwrap_or_default(),
        share,
    ),
];

const COLUMNS_OUT: [Column<HealthFigures>; 5] = [
    (
        "for work on a draining host",
        |run| run.healthy_out_gpu_hours.draining,
        digits,
    ),
    ("waiting", |run| run.healthy_out_gpu_hours.waiting, digits),
    (
        "for an operator",
        |run| run.healthy_out_gpu_hours.operator,
        digits,
    ),
    (
        "in a check or repair",
        |run| run.healthy_out_gpu_hours.checking,
        digits,
    ),
    ("together", |run| run.healthy_idle_gpu_hours, digits),
];

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn count(number: u64) -> f64 {
    number as f64
}

fn whole(number: f64) -> String {
    format!("{number:.0}")
}

fn share(part: f64) -> String {
    percent(Some(part))
}

fn all_three(run: &HealthFigures) -> f64 {
    run.ruined_gpu_hours + run.lost_gpu_hours + run.healthy_idle_gpu_hours
}

pub(super) fn figures(traces: &Traces) -> Result<Figures, Failure> {
    let outages = traces.outages()?;
    let questions: Vec<(Case, u64)> = CASES
        .into_iter()
        .flat_map(|case| SEEDS.map(|seed| (case, seed)))
        .collect();
    let runs = work::all(&questions, |(case, seed)| {
        let scenario = traces.philly_in_lingjun(Settings::default())?;
        let mut scenario = scenario
            .with_health_features(&outages, case.features)
            .with_fault_seed(*seed);
        if case.is_alarm {
            let span_ms = ALARM_FROM_MS..ALARM_FROM_MS + ALARM_MS;
            scenario = scenario.with_false_alarm(ALARM_PERCENT, span_ms);
        }
        if case.stays {
            scenario = scenario.with_known(JobInformation {
                checkpoints: false,
                ..JobInformation::default()
            });
        }
        let run = work::run(&scenario, POLICY)?;
        run.health
            .ok_or_else(|| "health figures are missing".into())
    })?;
    let rows: Vec<(Case, &[HealthFigures])> =
        CASES.into_iter().zip(runs.chunks(SEEDS.len())).collect();
    let looking_after: Vec<(Case, &[HealthFigures])> = rows
        .iter()
        .filter(|(case, _)| case.features > HealthFeatures::Nothing)
        .copied()
        .collect();
    Ok(Figures {
        tables: vec![
            ("health", table(&COLUMNS, &rows)),
            ("health-out", table(&COLUMNS_OUT, &looking_after)),
        ],
        pictures: Vec::new(),
    })
}

/// One row per case: the median of its runs, with minimum and maximum.
fn table(columns: &[Column<HealthFigures>], rows: &[(Case, &[HealthFigures])]) -> String {
    let titles = columns.iter().map(|(title, ..)| *title);
    let titles: Vec<&str> = ["done about faults"].into_iter().chain(titles).collect();
    let row = |(case, runs): &(Case, &[HealthFigures])| {
        let cells = columns.iter().map(|(_, value, text)| {
            let values = runs.iter().map(value).collect();
            of_several(values, *text)
        });
        [case.name.to_owned()].into_iter().chain(cells).collect()
    };
    markdown(&titles, &rows.iter().map(row).collect::<Vec<_>>())
}
