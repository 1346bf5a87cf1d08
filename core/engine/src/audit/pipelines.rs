//! Pipelines: their jobs have consecutive ids and one name, and depend only on earlier jobs.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::limits;

use crate::audit::{Report, Rule};
use crate::state::{Job, State};

pub(super) fn check(state: &State, report: &mut Report) {
    let mut pipelines: BTreeMap<_, Vec<&Job>> = BTreeMap::new();
    for job in state.jobs.values() {
        if let Some(mark) = &job.pipeline {
            pipelines.entry(mark.id).or_default().push(job);
        }
    }
    for (id, jobs) in pipelines {
        let subject = format!("pipeline {id}");
        let furthest = id.get() + limits::PIPELINE_JOBS_MAX as u64;
        let are_neighbours = jobs
            .iter()
            .all(|job| (id.get() + 1..=furthest).contains(&job.id.get()));
        report.require(are_neighbours, Rule::Pipelines, &subject, || {
            "one of its jobs has no id after its own".to_owned()
        });
        let marks: BTreeSet<_> = jobs
            .iter()
            .map(|job| (&job.pipeline, &job.spec.user))
            .collect();
        report.require(marks.len() == 1, Rule::Pipelines, &subject, || {
            "its jobs differ in its name or in their user".to_owned()
        });
        let names: BTreeSet<_> = jobs.iter().map(|job| &job.spec.name).collect();
        report.require(names.len() == jobs.len(), Rule::Pipelines, &subject, || {
            "two of its jobs have one name".to_owned()
        });
        let no_job = state.job(muster_model::ids::JobId(id.get())).is_none();
        report.require(no_job, Rule::Pipelines, &subject, || {
            "a job has its id".to_owned()
        });
        for job in jobs {
            let mut after = job.spec.lifecycle.after.iter();
            report.require(
                after.all(|dependency| dependency.job < job.id),
                Rule::Pipelines,
                &subject,
                || format!("job {} depends on a later job", job.id),
            );
        }
    }
}
