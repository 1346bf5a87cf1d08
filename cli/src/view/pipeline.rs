//! Pipelines: a row in a list, and a tree of jobs.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_documents::{Pipeline, PipelineCounts, PipelineDependency, PipelineDetail, PipelineJob};

use crate::failure::Failure;
use crate::output::{Cell, Column, Format, Row, Screen, Table, Tone, ago, render_document, span};
use crate::view::phase::{counted, phase_tone};

/// The counts that are not zero: `1 running, 2 queued`.
fn counts_text(jobs: &PipelineCounts) -> String {
    counted(&[
        (jobs.running, "running"),
        (jobs.queued, "queued"),
        (jobs.succeeded, "succeeded"),
        (jobs.failed, "failed"),
        (jobs.cancelled, "cancelled"),
        (jobs.skipped, "skipped"),
    ])
}

impl Row for Pipeline {
    const COLUMNS: &'static [Column] = &[
        Column::new("ID"),
        Column::new("NAME"),
        Column::new("USER"),
        Column::new("PHASE"),
        Column::new("JOBS"),
        Column::new("SUBMITTED"),
        Column::wide("TOOK"),
    ];

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let took = self
            .finished_at
            .map(|finished| span(finished.ms.saturating_sub(self.submitted_at.ms)));
        vec![
            self.id.to_string().into(),
            (*self.name).into(),
            (*self.user).into(),
            Cell::toned(self.phase.as_str(), phase_tone(self.phase.as_str())),
            counts_text(&self.jobs).into(),
            Cell::toned(ago(now, self.submitted_at), Tone::Faint),
            took.unwrap_or_default().into(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

/// Renders the requested format.
pub(crate) fn shown(detail: &PipelineDetail, screen: &Screen) -> Result<String, Failure> {
    Ok(match screen.format {
        Format::Table | Format::Wide => render(detail, screen),
        Format::Name => format!("{}\n", detail.pipeline.id),
        format => render_document(format, detail)?,
    })
}

/// Complete text: facts, and the jobs as a tree.
fn render(detail: &PipelineDetail, screen: &Screen) -> String {
    let pipeline = &detail.pipeline;
    let submitted = ago(screen.now(), pipeline.submitted_at);
    let mut facts = Table::new(&[Column::new(""), Column::new("")], false);
    let mut push = |key: &str, value: Cell| facts.push(vec![Cell::toned(key, Tone::Faint), value]);
    push("Pipeline", pipeline.id.to_string().into());
    push("Name", (*pipeline.name).into());
    push("User", (*pipeline.user).into());
    push(
        "Phase",
        Cell::toned(pipeline.phase.as_str(), phase_tone(pipeline.phase.as_str())),
    );
    push("Jobs", counts_text(&pipeline.jobs).into());
    push(
        "Submitted",
        format!("{} ({submitted})", pipeline.submitted_at).into(),
    );
    let mut text = facts.render(false);
    text.push('\n');
    text.push_str(&tree(detail).render(screen.headers));
    text
}

/// Every job below its last dependency.
fn tree(detail: &PipelineDetail) -> Table {
    let columns = ["JOB", "ID", "PHASE", "AFTER", "REASON"].map(Column::new);
    let mut table = Table::new(&columns, false);
    let mut children: BTreeMap<Option<u64>, Vec<&PipelineJob>> = BTreeMap::new();
    for member in &detail.job_list {
        let inside = member.after.iter().filter(|after| after.name.is_some());
        let parent = inside.map(|after| after.job).max();
        children.entry(parent).or_default().push(member);
    }
    push_below(&mut table, &children, None, "");
    table
}

/// Adds the dependents of a job to the table, each with its branch.
fn push_below(
    table: &mut Table,
    children: &BTreeMap<Option<u64>, Vec<&PipelineJob>>,
    parent: Option<u64>,
    indent: &str,
) {
    let below = children.get(&parent).map_or(&[][..], Vec::as_slice);
    for (position, member) in below.iter().enumerate() {
        let is_last = position + 1 == below.len();
        let (branch, further) = match (parent, is_last) {
            (None, _) => ("", ""),
            (Some(_), true) => ("└─ ", "   "),
            (Some(_), false) => ("├─ ", "│  "),
        };
        let after: Vec<String> = member.after.iter().map(dependency_text).collect();
        table.push(vec![
            format!("{indent}{branch}{}", member.name).into(),
            member.id.to_string().into(),
            Cell::toned(&*member.phase, phase_tone(&member.phase)),
            after.join(", ").into(),
            (*member.finish_reason).into(),
        ]);
        push_below(
            table,
            children,
            Some(member.id),
            &format!("{indent}{further}"),
        );
    }
}

fn dependency_text(dependency: &PipelineDependency) -> String {
    let job = dependency.job.to_string();
    let name = dependency.name.as_ref().unwrap_or(&job);
    format!("{} {name}", dependency.when)
}

#[cfg(test)]
mod tests {
    use muster_proto::v1;

    use super::*;

    fn job(id: u64, name: &str, after: &[(u64, v1::Condition)]) -> v1::Job {
        let after = after.iter().map(|(job_id, when)| v1::Dependency {
            job_id: *job_id,
            when: (*when).into(),
        });
        v1::Job {
            id,
            phase: v1::JobPhase::Queued.into(),
            spec: Some(v1::JobSpec {
                name: name.to_owned(),
                lifecycle: Some(v1::Lifecycle {
                    after: after.collect(),
                    ..v1::Lifecycle::default()
                }),
                ..v1::JobSpec::default()
            }),
            ..v1::Job::default()
        }
    }

    #[test]
    fn jobs_hang_below_the_last_of_those_they_wait_for() {
        use v1::Condition::{Ended, Failed, Succeeded};
        let detail = PipelineDetail::new(
            9,
            v1::Pipeline::default(),
            vec![
                job(5, "prepare", &[(2, Ended)]),
                job(6, "train", &[(5, Succeeded)]),
                job(7, "alarm", &[(6, Failed)]),
                job(8, "report", &[(5, Succeeded), (6, Ended)]),
            ],
        );
        let text = tree(&detail).render(true);
        let text = anstream::adapter::strip_str(&text).to_string();
        assert_eq!(
            text,
            concat!(
                "JOB           ID  PHASE   AFTER                              REASON\n",
                "prepare       5   queued  after_any 2\n",
                "└─ train      6   queued  after_ok prepare\n",
                "   ├─ alarm   7   queued  after_failed train\n",
                "   └─ report  8   queued  after_ok prepare, after_any train\n",
            )
        );
    }
}
