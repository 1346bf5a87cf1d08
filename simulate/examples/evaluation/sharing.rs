//! HiveD's sharing anomaly: the delay of virtual clusters that share, compared with each one alone on as
//! many GPUs.

use muster_simulate::report::JobFigures;
use muster_simulate::{Policy, Rules, Scenario, Settings};
use muster_text::{Line, Plot};

use crate::table::{hours, markdown};
use crate::traces::{COMPLETE_CLUSTERS, Traces};
use crate::{Failure, Figures, work};

const LOADS: [f64; 6] = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5];
const POLICIES: [Policy; 2] = [Policy::Capacity, Policy::Cells];

/// A virtual cluster under one policy at one load.
#[derive(Clone, Debug)]
struct Compared {
    load: f64,
    policy: Policy,
    cluster: &'static str,
    alone: JobFigures,
    shared: JobFigures,
}

pub(super) fn figures(traces: &Traces) -> Result<Figures, Failure> {
    let kept = compare(traces, false)?;
    let lent = compare(traces, true)?;
    let plot = |compared: &[Compared], label: &str| Plot {
        x_label: "load".to_owned(),
        y_label: label.to_owned(),
        x_from: LOADS[0],
        lines: lines(compared),
    };
    Ok(Figures {
        tables: vec![
            ("sharing-kept", table(&kept)),
            ("sharing-lent", table(&lent)),
            ("sharing-worst", worst(&kept, &lent)),
        ],
        pictures: vec![(
            "sharing",
            plot(&kept, "mean delay over that of a private cluster").draw(),
        )],
    })
}

/// Compares the wait of each virtual cluster when sharing with its wait alone.
fn compare(traces: &Traces, borrow: bool) -> Result<Vec<Compared>, Failure> {
    let mut questions = Vec::new();
    for load in LOADS {
        let rules = Rules {
            borrow,
            ..Rules::default()
        };
        let settings = Settings {
            load,
            rules,
            ..Settings::default()
        };
        let shared = traces.complete(settings, &[])?;
        questions.extend(POLICIES.map(|policy| (load, policy, shared.clone())));
    }
    let answers = work::all(&questions, |(load, policy, shared)| {
        compare_one(*load, *policy, shared)
    })?;
    Ok(answers.into_iter().flatten().collect())
}

fn compare_one(load: f64, policy: Policy, shared: &Scenario) -> Result<Vec<Compared>, Failure> {
    let together = work::run(shared, policy)?;
    let compared = COMPLETE_CLUSTERS.map(|cluster| {
        let alone = shared.alone(cluster).ok_or("every cluster has a quota")?;
        let mut groups = together.by_queue.iter();
        let group = groups.find(|group| group.name == cluster);
        Ok(Compared {
            load,
            policy,
            cluster,
            alone: work::run(&alone, policy)?.all,
            shared: group.ok_or("every cluster has jobs")?.jobs.clone(),
        })
    });
    compared.into_iter().collect()
}

impl Compared {
    fn delays_s(&self) -> (f64, f64) {
        let mean_s = |jobs: &JobFigures| jobs.delay.map_or(0.0, |delay| delay.mean_s);
        (mean_s(&self.alone), mean_s(&self.shared))
    }

    /// Mean delay when sharing over mean delay alone.
    fn ratio(&self) -> f64 {
        let (alone_s, shared_s) = self.delays_s();
        shared_s / alone_s
    }

    /// Like `ratio`, for times from submission to the end.
    fn completion_ratio(&self) -> f64 {
        let mean_s = |jobs: &JobFigures| jobs.completion.map_or(0.0, |spread| spread.mean_s);
        mean_s(&self.shared) / mean_s(&self.alone)
    }
}

fn of<'a>(
    compared: &'a [Compared],
    load: f64,
    policy: Policy,
    cluster: &str,
) -> Option<&'a Compared> {
    let mut compared = compared.iter();
    compared.find(|one| (one.load, one.policy, one.cluster) == (load, policy, cluster))
}

/// One row per load and virtual cluster.
fn table(compared: &[Compared]) -> String {
    let titles = [
        "load",
        "VC",
        "counts: alone",
        "shared",
        "ratio",
        "cells: alone",
        "shared",
        "ratio",
    ];
    let mut rows = Vec::new();
    for load in LOADS {
        for cluster in COMPLETE_CLUSTERS {
            let mut row = vec![format!("{load:.1}"), cluster.to_owned()];
            for one in POLICIES.map(|policy| of(compared, load, policy, cluster)) {
                let Some(one) = one else { continue };
                let (alone_s, shared_s) = one.delays_s();
                row.extend([hours(alone_s), hours(shared_s), ratio(one.ratio())]);
            }
            rows.push(row);
        }
    }
    markdown(&titles, &rows)
}

/// The largest ratio over all loads and virtual clusters.
fn worst(kept: &[Compared], lent: &[Compared]) -> String {
    let largest = |compared: &[Compared], policy: Policy, ratio: fn(&Compared) -> f64| {
        let of_policy = compared.iter().filter(|one| one.policy == policy);
        of_policy.map(ratio).fold(0.0, f64::max)
    };
    let row = |name: &str, policy: Policy| {
        let mut row = vec![name.to_owned()];
        for compared in [kept, lent] {
            row.push(ratio(largest(compared, policy, Compared::ratio)));
            row.push(ratio(largest(compared, policy, Compared::completion_ratio)));
        }
        row
    };
    let titles = [
        "largest ratio of any VC at any load",
        "delay, nothing lent",
        "JCT, nothing lent",
        "delay, idle GPUs lent",
        "JCT, idle GPUs lent",
    ];
    let rows = [
        row("quota in GPUs (`capacity`)", Policy::Capacity),
        row("quota in cells (`cells`)", Policy::Cells),
    ];
    markdown(&titles, &rows)
}

/// Four digits; values above 1 are highlighted.
fn ratio(ratio: f64) -> String {
    let text = format!("{ratio:.4}");
    match text.as_str() > "1.0000" {
        true => format!("**{text}**"),
        false => text,
    }
}

fn lines(compared: &[Compared]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (policy, name) in [(Policy::Capacity, "counts"), (Policy::Cells, "cells")] {
        for cluster in COMPLETE_CLUSTERS {
            let points = LOADS.into_iter().filter_map(|load| {
                let one = of(compared, load, policy, cluster)?;
                Some((load, one.ratio()))
            });
            lines.push(Line {
                name: format!("{name}, {cluster}"),
                points: points.collect(),
            });
        }
    }
    lines
}
