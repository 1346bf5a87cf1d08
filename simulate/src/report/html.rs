//! The report as one page that needs nothing else: tables and pictures.

use std::fmt::Write as _;

use super::charts::{self, Legend, QueueColours};
use super::numbers::{percent, span};
use super::svg::escape;
use super::{Report, RunReport, text};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2330;--paper:#fff;--line:#d7dce4;--soft:#667085}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--paper:#14171c;--line:#333a45;--soft:#98a2b3}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:940px;margin:2rem auto;\
padding:0 1rem}h1,h2,h3{line-height:1.2;margin:2rem 0 .6rem}p{margin:.4rem 0}.soft{color:var(--soft)}\
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}\
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}\
th:first-child,td:first-child{text-align:left}svg{width:100%;height:auto;display:block}\
svg text{font:11px system-ui,sans-serif;fill:var(--soft)}.grid{stroke:var(--line);fill:none}\
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:13px}.legend i{display:inline-block;width:.8em;\
height:.8em;border-radius:2px;margin-right:.4em}";

/// The whole page.
pub(super) fn page(report: &Report<'_>) -> String {
    let mut page = Page(String::from(
        "<!doctype html><html lang=en><meta charset=utf-8>",
    ));
    page.add("<meta name=viewport content='width=device-width'><title>Muster simulation</title>");
    page.add(&format!("<style>{STYLE}</style><h1>Muster simulation</h1>"));
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
    page.0
}

struct Page(String);

impl Page {
    fn add(&mut self, markup: &str) {
        self.0.push_str(markup);
        self.0.push('\n');
    }

    fn sentences(&mut self, sentences: &[String]) {
        for sentence in sentences {
            self.add(&format!("<p class=soft>{}</p>", escape(sentence)));
        }
    }

    fn table(&mut self, titles: &[&str], rows: &[Vec<String>]) {
        let head: String = titles
            .iter()
            .map(|title| format!("<th>{}</th>", escape(title)))
            .collect();
        self.add(&format!("<div class=scroll><table><tr>{head}</tr>"));
        for row in rows {
            let cells = row.iter();
            let cells: String = cells
                .map(|cell| format!("<td>{}</td>", escape(cell)))
                .collect();
            self.add(&format!("<tr>{cells}</tr>"));
        }
        self.add("</table></div>");
    }

    fn legend(&mut self, legend: &Legend) {
        let mut markup = String::from("<div class=legend>");
        for (name, colour) in legend {
            let name = escape(name);
            write!(
                markup,
                "<span><i style='background:{colour}'></i>{name}</span>"
            )
            .expect("a string takes everything");
        }
        markup.push_str("</div>");
        self.add(&markup);
    }

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
            self.add(&format!("<h2>{title}</h2>"));
            self.legend(&charts::policies(outcomes));
            self.add(&picture);
        }
    }

    fn run(&mut self, run: &RunReport) {
        let cluster = &run.cluster;
        self.add(&format!("<h2>Policy {}</h2>", escape(run.policy)));
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
