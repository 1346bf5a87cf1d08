//! Report as one HTML page.

use muster_text::Page;

use crate::report::charts::{self, QueueColours};
use crate::report::numbers::{percent, span};
use crate::report::{Report, RunReport, text};

/// The whole page.
pub(super) fn page(report: &Report<'_>) -> String {
    let mut page = Page::titled("Muster simulation");
    page.sentences(&text::sentences(&report.inputs));
    page.table(&text::runs(&report.runs));
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
    compare(&mut page, report);
    for (run, outcome) in report.runs.iter().zip(report.outcomes) {
        show_run(&mut page, run);
        let queues = QueueColours::of(outcome);
        page.add("<h3>GPUs held by queue</h3>");
        page.legend(&queues.legend);
        page.add(&charts::queue_shares(report.scenario, outcome, &queues));
        page.add("<h3>GPUs of some hosts, by queue</h3>");
        page.add(&charts::gantt(report.scenario, outcome, &queues));
    }
    page.finish()
}

fn compare(page: &mut Page, report: &Report<'_>) {
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
        page.heading(title);
        page.legend(&charts::policies(outcomes));
        page.add(&picture);
    }
}

fn show_run(page: &mut Page, run: &RunReport) {
    let cluster = &run.cluster;
    page.heading(&format!("Policy {}", run.policy));
    page.sentences(&text::run_sentences(run));
    page.sentences(&[format!(
        "GPUs held: {} of the makespan's GPU-time, {} until the last submission, {} while jobs wait ({} of the \
         makespan). Free GPU-time on hosts that are not wholly free: {}. GPU-hours of hosts that were down: {:.0}.",
        percent(cluster.utilisation),
        percent(cluster.utilisation_until_last_submission),
        percent(cluster.utilisation_while_waiting),
        percent(cluster.waiting_share),
        percent(cluster.fragmentation_whole_host),
        cluster.down_gpu_hours
    )]);
    page.table(&text::groups(run));
}
