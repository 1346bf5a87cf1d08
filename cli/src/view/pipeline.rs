//! Pipelines: a row in a list, and a tree of jobs.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_client::PipelineDetail;
use muster_proto::v1;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{
    Cell, Column, Format, Row, Screen, Table, Tone, ago, instant, render_document, span,
};
use crate::view::word::{counted, job_phase, phase_tone};

/// A pipeline without its jobs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PipelineView {
    id: u64,
    name: String,
    user: String,
    phase: String,
    jobs: CountsView,
    submitted_at: String,
    finished_at: Option<String>,
    #[serde(skip)]
    submitted_at_ms: u64,
    #[serde(skip)]
    finished_at_ms: Option<u64>,
}

/// Number of its jobs in each phase.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct CountsView {
    queued: u32,
    running: u32,
    succeeded: u32,
    failed: u32,
    cancelled: u32,
    skipped: u32,
}

/// A pipeline with its jobs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PipelineDetailView {
    revision: u64,
    #[serde(flatten)]
    pipeline: PipelineView,
    job_list: Vec<MemberView>,
}

/// A job of a pipeline.
#[derive(Clone, Debug, Serialize)]
struct MemberView {
    id: u64,
    name: String,
    /// Phase of the job, or `skipped` if it was never placed because its dependencies did not end as
    /// required.
    phase: String,
    finish_reason: String,
    after: Vec<AfterView>,
}

/// A dependency of a job.
#[derive(Clone, Debug, Serialize)]
struct AfterView {
    job: u64,
    /// Its name; `None` if it belongs to another pipeline, or to none.
    name: Option<String>,
    when: &'static str,
}

impl From<v1::Pipeline> for PipelineView {
    fn from(pipeline: v1::Pipeline) -> Self {
        let counts = pipeline.counts.unwrap_or_default();
        Self {
            phase: job_phase(pipeline.phase()),
            id: pipeline.id,
            name: pipeline.name,
            user: pipeline.user,
            jobs: CountsView {
                queued: counts.queued,
                running: counts.running,
                succeeded: counts.succeeded,
                failed: counts.failed,
                cancelled: counts.cancelled,
                skipped: counts.skipped,
            },
            submitted_at: instant(pipeline.submitted_at_ms),
            finished_at: pipeline.finished_at_ms.map(instant),
            submitted_at_ms: pipeline.submitted_at_ms,
            finished_at_ms: pipeline.finished_at_ms,
        }
    }
}

impl CountsView {
    /// The counts that are not zero: `1 running, 2 queued`.
    fn text(self) -> String {
        let counts = [
            (self.running, "running"),
            (self.queued, "queued"),
            (self.succeeded, "succeeded"),
            (self.failed, "failed"),
            (self.cancelled, "cancelled"),
            (self.skipped, "skipped"),
        ];
        counted(&counts)
    }
}

impl Row for PipelineView {
    const COLUMNS: &'static [Column] = &[
        Column::new("ID"),
        Column::new("NAME"),
        Column::new("USER"),
        Column::new("PHASE"),
        Column::new("JOBS"),
        Column::new("SUBMITTED"),
        Column::wide("TOOK"),
    ];
    const KEY: &'static str = "pipelines";

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let took = self
            .finished_at_ms
            .map(|finished| span(finished.saturating_sub(self.submitted_at_ms)));
        vec![
            self.id.to_string().into(),
            (*self.name).into(),
            (*self.user).into(),
            Cell::toned(&*self.phase, phase_tone(&self.phase)),
            self.jobs.text().into(),
            Cell::toned(ago(now, self.submitted_at_ms), Tone::Faint),
            took.unwrap_or_default().into(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl From<PipelineDetail> for PipelineDetailView {
    fn from(detail: PipelineDetail) -> Self {
        let names: BTreeMap<u64, String> = detail
            .jobs
            .iter()
            .map(|job| {
                (
                    job.id,
                    job.spec.as_ref().map_or("", |spec| &spec.name).to_owned(),
                )
            })
            .collect();
        let member = |job| member(job, &names);
        Self {
            revision: detail.revision.get(),
            pipeline: PipelineView::from(detail.pipeline),
            job_list: detail.jobs.into_iter().map(member).collect(),
        }
    }
}

fn member(job: v1::Job, names: &BTreeMap<u64, String>) -> MemberView {
    let phase = if job.skipped {
        "skipped".to_owned()
    } else {
        job_phase(job.phase())
    };
    let spec = job.spec.unwrap_or_default();
    let after = spec.lifecycle.unwrap_or_default().after;
    MemberView {
        id: job.id,
        name: spec.name,
        phase,
        finish_reason: job.finish_reason,
        after: after.into_iter().map(|it| after_view(it, names)).collect(),
    }
}

fn after_view(dependency: v1::Dependency, names: &BTreeMap<u64, String>) -> AfterView {
    let when = match dependency.when() {
        v1::Condition::Succeeded => "after_ok",
        v1::Condition::Failed => "after_failed",
        v1::Condition::Ended | v1::Condition::Unspecified => "after_any",
    };
    AfterView {
        job: dependency.job_id,
        name: names.get(&dependency.job_id).cloned(),
        when,
    }
}

impl PipelineDetailView {
    /// Renders the requested format.
    pub(crate) fn shown(&self, screen: &Screen) -> Result<String, Failure> {
        Ok(match screen.format {
            Format::Table | Format::Wide => self.render(screen),
            Format::Name => format!("{}\n", self.pipeline.id),
            format => render_document(format, self)?,
        })
    }

    /// Complete text: facts, and the jobs as a tree.
    pub(crate) fn render(&self, screen: &Screen) -> String {
        let pipeline = &self.pipeline;
        let submitted = ago(screen.now(), pipeline.submitted_at_ms);
        let mut facts = Table::new(&[Column::new(""), Column::new("")], false);
        let mut push =
            |key: &str, value: Cell| facts.push(vec![Cell::toned(key, Tone::Faint), value]);
        push("Pipeline", pipeline.id.to_string().into());
        push("Name", (*pipeline.name).into());
        push("User", (*pipeline.user).into());
        push(
            "Phase",
            Cell::toned(&*pipeline.phase, phase_tone(&pipeline.phase)),
        );
        push("Jobs", pipeline.jobs.text().into());
        push(
            "Submitted",
            format!("{} ({submitted})", pipeline.submitted_at).into(),
        );
        let mut text = facts.render(false);
        text.push('\n');
        text.push_str(&self.tree().render(screen.headers));
        text
    }

    /// Every job below its last dependency.
    fn tree(&self) -> Table {
        let columns = ["JOB", "ID", "PHASE", "AFTER", "REASON"].map(Column::new);
        let mut table = Table::new(&columns, false);
        let mut children: BTreeMap<Option<u64>, Vec<&MemberView>> = BTreeMap::new();
        for member in &self.job_list {
            let inside = member.after.iter().filter(|after| after.name.is_some());
            let parent = inside.map(|after| after.job).max();
            children.entry(parent).or_default().push(member);
        }
        push_below(&mut table, &children, None, "");
        table
    }
}

/// Adds the dependents of a job to the table, each with its branch.
fn push_below(
    table: &mut Table,
    children: &BTreeMap<Option<u64>, Vec<&MemberView>>,
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
        let after: Vec<String> = member.after.iter().map(AfterView::text).collect();
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

impl AfterView {
    fn text(&self) -> String {
        let job = self.job.to_string();
        format!("{} {}", self.when, self.name.as_ref().unwrap_or(&job))
    }
}

#[cfg(test)]
mod tests {
    use muster_model::ids::Revision;

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
        let detail = PipelineDetail {
            revision: Revision(9),
            pipeline: v1::Pipeline::default(),
            jobs: vec![
                job(5, "prepare", &[(2, Ended)]),
                job(6, "train", &[(5, Succeeded)]),
                job(7, "alarm", &[(6, Failed)]),
                job(8, "report", &[(5, Succeeded), (6, Ended)]),
            ],
        };
        let text = PipelineDetailView::from(detail).tree().render(true);
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
