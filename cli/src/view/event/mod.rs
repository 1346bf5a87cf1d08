//! An event, as one line and as a document.

mod access_facts;
mod cluster_facts;
mod job_facts;

use std::collections::BTreeMap;

use muster_proto::v1;
use serde::Serialize;
use serde_json::Value;

use crate::output::{Cell, Column, Table, Tone, instant};
use crate::parse::compress;

/// Column width that keeps the columns of a stream aligned without knowledge of later lines.
const KIND_WIDTH: usize = 20;

/// Host names by id: events contain ids.
pub(crate) type HostNames = BTreeMap<u32, String>;

/// One event.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EventView {
    revision: u64,
    time: String,
    kind: &'static str,
    job: Option<u64>,
    text: String,
    detail: Value,
    #[serde(skip)]
    tone: Tone,
}

/// Text and facts of one kind of event.
struct Facts {
    kind: &'static str,
    job: Option<u64>,
    text: String,
    detail: Value,
    tone: Tone,
}

impl EventView {
    /// An event of a revision; `None` for a kind that this version does not know.
    pub(crate) fn new(
        revision: u64,
        time_ms: u64,
        event: v1::Event,
        hosts: &HostNames,
    ) -> Option<Self> {
        let kind = event.kind?;
        let facts = job_facts::of(&kind, hosts)
            .or_else(|| cluster_facts::of(&kind))
            .or_else(|| access_facts::of(&kind))?;
        Some(Self {
            revision,
            time: instant(time_ms),
            kind: facts.kind,
            job: facts.job,
            text: facts.text,
            detail: facts.detail,
            tone: facts.tone,
        })
    }

    /// One line of text.
    pub(crate) fn line(&self) -> String {
        const COLUMNS: &[Column] = &[
            Column::new(""),
            Column::new(""),
            Column::new(""),
            Column::new(""),
        ];
        let mut table = Table::new(COLUMNS, false);
        let job = self
            .job
            .map_or_else(|| "-".to_owned(), |job| format!("job {job}"));
        table.push(vec![
            Cell::toned(&*self.time, Tone::Faint),
            Cell::toned(format!("{:KIND_WIDTH$}", self.kind), self.tone),
            format!("{job:9}").into(),
            (*self.text).into(),
        ]);
        table.render(false)
    }

    /// The kind of the event.
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    /// Its facts.
    pub(crate) fn detail(&self) -> &Value {
        &self.detail
    }

    /// The revision, for `-o name`.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }
}

/// Names of hosts where known, as a short list.
fn host_list(ids: &[u32], hosts: &HostNames) -> String {
    let names: Vec<String> = ids.iter().map(|id| host_name(*id, hosts)).collect();
    compress(&names)
}

fn host_name(id: u32, hosts: &HostNames) -> String {
    hosts.get(&id).cloned().unwrap_or_else(|| format!("#{id}"))
}
