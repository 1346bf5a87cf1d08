//! Series of queues (resources and waiting times), see `lists`.

use std::cmp::Reverse;
use std::fmt::{Display, Write as _};
use std::time::Duration;

use muster_engine::state::{Queue, State};
use muster_model::quota::Guarantee;
use muster_model::time::TimeMs;

use crate::metrics::names::{
    OLDEST_WAIT_SECONDS, OLDEST_WAIT_SECONDS_HELP, QUEUE_GPUS, QUEUE_GPUS_HELP, QUEUE_LIVE_JOBS,
    QUEUE_LIVE_JOBS_HELP,
};
use crate::metrics::object_series::{escaped, head};
use crate::metrics::waits::{OTHER_QUEUES, QUEUES_LABELLED_MAX, oldest_waits_ms};

/// Kinds of a queue's GPUs.
const KINDS: [&str; 4] = ["guaranteed", "held", "opportunistic", "claimed"];

/// Values of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct QueueValues {
    live_jobs: u64,
    /// In the order of [`KINDS`].
    gpus: [u64; 4],
}

impl QueueValues {
    fn of(state: &State, queue: &Queue) -> Self {
        let usage = state
            .index
            .usage
            .get(&queue.name)
            .map(|usage| usage.total.clone())
            .unwrap_or_default();
        let guaranteed = match &queue.config.guarantee {
            Guarantee::Amounts(amounts) => amounts.gpus,
            Guarantee::Cells(quotas) => quotas
                .iter()
                .map(|quota| {
                    let cells = u64::from(quota.count) + quota.pinned.len() as u64;
                    cells * u64::from(quota.gpus)
                })
                .sum(),
        };
        Self {
            live_jobs: queue.live_jobs,
            gpus: [
                guaranteed,
                usage.held.gpus,
                usage.opportunistic.gpus,
                usage.claimed.gpus,
            ],
        }
    }

    fn add(&mut self, other: &Self) {
        self.live_jobs += other.live_jobs;
        for (sum, gpus) in self.gpus.iter_mut().zip(other.gpus) {
            *sum += gpus;
        }
    }
}

/// Values by queue with a bounded number of labels: the queues that hold the most GPUs have their own.
fn by_queue(state: &State) -> Vec<(String, QueueValues)> {
    let queues = state.queues.values();
    let mut all: Vec<(String, QueueValues)> = queues
        .map(|queue| (queue.name.to_string(), QueueValues::of(state, queue)))
        .collect();
    if all.len() <= QUEUES_LABELLED_MAX {
        return all;
    }
    // Stable: queues with equal values stay in order of name.
    all.sort_by_key(|(_, figures)| Reverse(figures.gpus[1]));
    let mut others = QueueValues::default();
    for (_, figures) in all.drain(QUEUES_LABELLED_MAX..) {
        others.add(&figures);
    }
    all.push((OTHER_QUEUES.to_owned(), others));
    all
}

/// Resources of queues and waiting times of their oldest jobs as of `now`, in Prometheus' text format.
pub(super) fn queues(state: &State, now: TimeMs) -> String {
    let all = by_queue(state);
    let mut page = head(QUEUE_LIVE_JOBS, QUEUE_LIVE_JOBS_HELP);
    for (queue, figures) in &all {
        line(&mut page, QUEUE_LIVE_JOBS, queue, "", figures.live_jobs);
    }
    page.push_str(&head(QUEUE_GPUS, QUEUE_GPUS_HELP));
    for (queue, figures) in &all {
        for (kind, gpus) in KINDS.iter().zip(figures.gpus) {
            let kind = format!(",kind=\"{kind}\"");
            line(&mut page, QUEUE_GPUS, queue, &kind, gpus);
        }
    }
    page.push_str(&head(OLDEST_WAIT_SECONDS, OLDEST_WAIT_SECONDS_HELP));
    for (queue, waited_ms) in oldest_waits_ms(state, now) {
        let waited = Duration::from_millis(waited_ms).as_secs_f64();
        line(&mut page, OLDEST_WAIT_SECONDS, &queue, "", waited);
    }
    page
}

/// Writes the value of a queue; `labels` are further labels, each with a leading comma.
fn line(page: &mut String, name: &str, queue: &str, labels: &str, value: impl Display) {
    let queue = escaped(queue);
    let _ = writeln!(page, "{name}{{queue=\"{queue}\"{labels}}} {value}");
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use muster_harness::{Cluster, single};
    use muster_model::quota::{QueueConfig, QueueTree};
    use muster_model::spec::{DEFAULT_QUEUE, JobSpec};

    use super::*;

    fn tree(names: impl Iterator<Item = String>) -> QueueTree {
        let queues: BTreeMap<String, QueueConfig> =
            names.map(|name| (name, QueueConfig::default())).collect();
        QueueTree {
            queues,
            ..QueueTree::default()
        }
    }

    fn page(cluster: &Cluster) -> String {
        queues(&cluster.state, cluster.now)
    }

    /// The queues that have lines of this name.
    fn labels(page: &str, name: &str) -> BTreeSet<String> {
        let begin = format!("{name}{{queue=\"");
        let lines = page.lines().filter_map(|line| line.strip_prefix(&*begin));
        lines
            .filter_map(|rest| rest.split_once('"'))
            .map(|(queue, _)| queue.to_owned())
            .collect()
    }

    #[test]
    fn a_queue_has_series_as_long_as_it_exists() {
        let mut cluster = Cluster::with_hosts(1, 4);
        cluster.configure(tree(["research".to_owned()].into_iter()));
        let job = cluster.submit(JobSpec {
            queue: "research".to_owned(),
            ..single("old", 1, 3)
        });
        cluster.wait(1_500);
        let shown = page(&cluster);
        for line in [
            "muster_scheduler_queue_live_jobs{queue=\"research\"} 1",
            "muster_scheduler_queue_gpus{queue=\"research\",kind=\"held\"} 0",
            "muster_scheduler_oldest_wait_seconds{queue=\"research\"} 1.5",
            "muster_scheduler_queue_live_jobs{queue=\"default\"} 0",
        ] {
            assert!(shown.lines().any(|it| it == line), "{line}: {shown}");
        }
        assert_eq!(cluster.place_all(job), 1);
        let held = "muster_scheduler_queue_gpus{queue=\"research\",kind=\"held\"} 3";
        let shown = page(&cluster);
        assert!(shown.lines().any(|it| it == held), "{shown}");
        cluster.start_all(job);
        cluster.finish_all(job);
        cluster.configure(QueueTree::default());
        let shown = page(&cluster);
        assert!(!shown.contains("research"), "{shown}");
        assert!(labels(&shown, QUEUE_GPUS).contains(DEFAULT_QUEUE));
    }

    #[test]
    fn labels_are_limited_to_the_queues_that_hold_most() {
        let mut cluster = Cluster::with_hosts(1, 4);
        let name = |number: usize| format!("queue-{number:03}");
        cluster.configure(tree((0..=QUEUES_LABELLED_MAX).map(name)));
        let last = name(QUEUES_LABELLED_MAX);
        for is_first in [true, false] {
            let shown = page(&cluster);
            for series in [QUEUE_LIVE_JOBS, QUEUE_GPUS, OLDEST_WAIT_SECONDS] {
                let labels = labels(&shown, series);
                assert_eq!(labels.len(), QUEUES_LABELLED_MAX + 1, "{series}");
                assert!(labels.contains(OTHER_QUEUES), "{series}");
            }
            assert_eq!(labels(&shown, QUEUE_GPUS).contains(&last), !is_first);
            let job = cluster.submit(JobSpec {
                queue: last.clone(),
                ..single("late", 1, 1)
            });
            assert_eq!(cluster.place_all(job), 1);
        }
    }

    #[test]
    fn names_of_queues_are_escaped() {
        let mut page = String::new();
        line(&mut page, "series", "a\"b", ",kind=\"held\"", 7);
        assert_eq!(page, "series{queue=\"a\\\"b\",kind=\"held\"} 7\n");
    }
}
