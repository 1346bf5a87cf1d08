//! Report as one HTML page.

use crate::report::charts::{self, QueueColours};
use crate::report::numbers::{percent, span};
use crate::report::page::Page;
use crate::report::{Report, RunReport, text};

/// The whole page.
pub(super) fn page(report: &Report<'_>) -> String {
    let mut page = Page::titled("Muster simulation");
    page.sentences(&text::sentences(&report.inputs));
    let runs: Vec<_> = report.runs.iter().map(text::run_cells).collect();
    page.table(&text::RUN_TITLES, &runs);
    if let Some(run) = report.runs.first() {
        let bounds = run.bounds;
        page.sentences(&[format!(
            "No policy can do better than a mean JCT of {} and a makespan of {}. Utilisation is \
             that until the last submission; fragmentation is the share of free GPU-time that cannot take part \
             in the first waiting job's request; fairness is Jain's index over the queues' mean slowdowns.",
            span(bounds.completion_mean_s),
            span(bounds.makespan_s)
        )]);
    }
    page.comparison(report);
    for (run, outcome) in report.runs.iter().zip(report.outcomes) {
        page.run(run);
        let queues = QueueColours::of(outcome);
        page.add("<h3>GPUs held by queue</h3>");
        page.legend(&queues.legend);
        page.add(&charts::queue_shares(report.scenario, outcome, &queues));
        page.add("<h3>GPUs of some hosts, by queue</h3>");
        page.add(&charts::gantt(report.scenario, outcome, &queues));
    }
    page.finish()
}

impl Page {
    fn comparison(&mut self, report: &Report<'_>) {
        let outcomes = report.outcomes;
        let pictures = [
            (
                "Utilisation",
                charts::utilisation(report.scenario, outcomes),
            ),
            ("Queueing delay", charts::delays(outcomes)),
            ("Waiting", charts::demand(outcomes)),
        ];
        for (title, picture) in pictures {
            self.heading(title);
            self.legend(&charts::policies(outcomes));
            self.add(&picture);
        }
    }

    fn run(&mut self, run: &RunReport) {
        let cluster = &run.cluster;
        self.heading(&format!("Policy {}", run.policy));
        self.sentences(&text::run_sentences(run));
        self.sentences(&[format!(
            "GPUs held: {} of the makespan's GPU-time, {} until the last submission, {} while jobs wait ({} of \
             the makespan). Free GPU-time on hosts that are not wholly free: {}. GPU-hours of hosts that were \
             down: {:.0}.",
            percent(cluster.utilisation),
            percent(cluster.utilisation_until_last_submission),
            percent(cluster.utilisation_while_waiting),
            percent(cluster.waiting_share),
            percent(cluster.fragmentation_whole_host),
            cluster.down_gpu_hours
        )]);
        self.table(&text::GROUP_TITLES, &text::group_rows(run));
    }
}
