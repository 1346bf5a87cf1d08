//! Files of a report: `report.md`, `report.html`, `report.json` and the underlying histories.

use std::fs;
use std::path::Path;

use muster_control::agent::JournalRecord;
use muster_model::event::EventKind;
use muster_model::ids::Revision;
use muster_proto::v1;
use muster_text::Page;
use serde::Serialize;

use crate::run::RunError;
use crate::run::checkers::Evidence;
use crate::run::clock::RunSpan;
use crate::run::load::{Delivery, Gap};
use crate::run::report::{RunReport, picture};

/// Folder of the histories.
const HISTORY_FOLDER: &str = "history";

/// Writes all files into a folder, which is created if missing. Times are those of the run's clock, in
/// microseconds.
pub(in crate::run) fn write(
    folder: &Path,
    report: &RunReport,
    evidence: &Evidence,
    span: RunSpan,
) -> Result<(), RunError> {
    let histories = folder.join(HISTORY_FOLDER);
    let making = RunError::io(format!("creating {}", histories.display()));
    fs::create_dir_all(&histories).map_err(making)?;
    let save = |path: &Path, text: String| {
        fs::write(path, text).map_err(RunError::io(format!("writing {}", path.display())))
    };
    save(&folder.join("report.md"), report.to_string())?;
    save(&folder.join("report.html"), page(report, evidence, span))?;
    let json = serde_json::to_string_pretty(report).map_err(RunError::json)?;
    save(&folder.join("report.json"), json)?;
    save(&histories.join("users.jsonl"), lines(&evidence.operations)?)?;
    save(&histories.join("nemesis.jsonl"), lines(&evidence.episodes)?)?;
    save(
        &histories.join("tasks.jsonl"),
        lines(&evidence.ledger.holdings)?,
    )?;
    save(
        &histories.join("conflicts"),
        evidence.ledger.conflicts.join("\n"),
    )?;
    let watched = evidence.watched.iter();
    let deliveries = watched.flat_map(|one| {
        one.deliveries
            .iter()
            .map(|it| DeliveryRecord::of(&one.at, it))
    });
    save(
        &histories.join("watchers.jsonl"),
        lines(&deliveries.collect::<Vec<_>>())?,
    )?;
    let gaps = { evidence.watched.iter() }.flat_map(|one| {
        let watcher = &one.at;
        one.gaps.iter().map(move |gap| GapRecord { watcher, gap })
    });
    save(
        &histories.join("gaps.jsonl"),
        lines(&gaps.collect::<Vec<_>>())?,
    )?;
    let written = { evidence.journals.iter() }.flat_map(|journal| {
        let host = &journal.host;
        { journal.records.iter() }.map(move |record| JournalRecordRow { host, record })
    });
    save(
        &histories.join("agents.jsonl"),
        lines(&written.collect::<Vec<_>>())?,
    )
}

/// Journal record of one agent.
#[derive(Serialize)]
struct JournalRecordRow<'a> {
    host: &'a str,
    record: &'a JournalRecord,
}

/// Gap reported to one watcher.
#[derive(Serialize)]
struct GapRecord<'a> {
    watcher: &'a str,
    #[serde(flatten)]
    gap: &'a Gap,
}

/// Delivery to one watcher.
#[derive(Serialize)]
struct DeliveryRecord<'a> {
    watcher: &'a str,
    at_us: u64,
    revision: Revision,
    events: Vec<&'static str>,
}

impl<'a> DeliveryRecord<'a> {
    fn of(watcher: &'a str, delivery: &Delivery) -> Self {
        let kinds = delivery.events.iter();
        let names = kinds.map(|event| match EventKind::try_from(event.clone()) {
            Ok(kind) => v1::EventKind::from(&kind).as_str_name(),
            Err(_) => "UNKNOWN",
        });
        Self {
            watcher,
            at_us: delivery.at_us,
            revision: delivery.revision,
            events: names.collect(),
        }
    }
}

/// Serializes each record as one line of JSON.
fn lines<T: Serialize>(records: &[T]) -> Result<String, RunError> {
    let mut text = String::new();
    for record in records {
        text.push_str(&serde_json::to_string(record).map_err(RunError::json)?);
        text.push('\n');
    }
    Ok(text)
}

fn page(report: &RunReport, evidence: &Evidence, span: RunSpan) -> String {
    let mut page = Page::titled(&format!("Chaos run: {}", report.profile));
    let mut sentences = vec![report.sentence()];
    sentences.extend(report.violations.iter().map(ToString::to_string));
    sentences.extend(report.invalid.iter().cloned());
    sentences.extend(report.grounds.iter().map(ToString::to_string));
    sentences.extend(report.of_network());
    sentences.push(format!("Command: {}", report.again));
    page.sentences(&sentences);
    page.heading("Timeline");
    let legend = picture::LEGEND.map(|(name, colour)| (name.to_owned(), colour.to_owned()));
    page.legend(&legend);
    page.add(&picture::of_cluster(evidence, span));
    page.heading("GPU holders, from the tasks' ledger");
    page.add(&picture::of_gpus(evidence, span));
    page.heading("Faults");
    page.table(&report.fault_table());
    page.sentences(&report.notes());
    page.heading("Checks");
    page.table(&report.check_table());
    page.heading("Coverage");
    page.table(&report.coverage_table());
    page.finish()
}
