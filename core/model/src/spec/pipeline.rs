//! Pipelines: jobs submitted as one object, with dependencies among them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::spec::validate::{Findings, text_bytes};
use crate::spec::{Condition, JobSpec, Violation, validate};

/// Specification of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pipeline {
    /// Display name; need not be unique.
    pub name: String,
    /// Its jobs, each after its dependencies. At least one, at most `PIPELINE_JOBS_MAX`.
    pub jobs: Vec<PipelineJob>,
}

/// A job of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineJob {
    /// Specification; its name is unique in the pipeline, its user is the same for all jobs.
    pub spec: Arc<JobSpec>,
    /// Jobs of the pipeline that must have ended first, besides those in the specification.
    pub after: Vec<PipelineDependency>,
}

/// Another job of the same pipeline that must have ended first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PipelineDependency {
    /// Position in the pipeline, counted from 0.
    pub position: u32,
    /// Required outcome.
    pub when: Condition,
}

impl Pipeline {
    /// User who submits it: the user of its jobs; empty if it has no jobs.
    #[must_use]
    pub fn user(&self) -> &str {
        self.jobs.first().map_or("", |job| &job.spec.user)
    }
}

/// All rules that a pipeline violates, in field order; empty if it is valid.
#[must_use]
pub fn validate_pipeline(pipeline: &Pipeline) -> Vec<Violation> {
    let mut found = Findings::default();
    found.name("name", &pipeline.name);
    found.check(!pipeline.jobs.is_empty(), "jobs", || {
        "must name at least one job".to_owned()
    });
    found.at_most(
        "jobs",
        pipeline.jobs.len(),
        "PIPELINE_JOBS_MAX",
        limits::PIPELINE_JOBS_MAX,
    );
    let bytes = pipeline.jobs.iter().map(|job| text_bytes(&job.spec)).sum();
    found.at_most(
        "jobs",
        bytes,
        "PIPELINE_BYTES_MAX",
        limits::PIPELINE_BYTES_MAX,
    );
    let mut names = BTreeSet::new();
    for (position, job) in (0..).zip(&pipeline.jobs) {
        let at = format!("jobs[{position}]");
        let spec = &job.spec;
        found.check(names.insert(&spec.name), &format!("{at}.name"), || {
            format!("`{}` names two jobs of the pipeline", spec.name)
        });
        found.check(spec.user == pipeline.user(), &format!("{at}.user"), || {
            "must be the user of all jobs of the pipeline".to_owned()
        });
        dependencies(&mut found, &at, position, job);
        found.extend(validate(spec).into_iter().map(|rule| Violation {
            field: format!("{at}.{}", rule.field),
            ..rule
        }));
    }
    found.into_violations()
}

fn dependencies(found: &mut Findings, at: &str, own: u32, job: &PipelineJob) {
    found.at_most(
        &format!("{at}.after"),
        job.after.len() + job.spec.lifecycle.after.len(),
        "DEPENDENCIES_MAX",
        limits::DEPENDENCIES_MAX,
    );
    let mut named = BTreeSet::new();
    for (number, dependency) in job.after.iter().enumerate() {
        let field = format!("{at}.after[{number}].job");
        found.check(dependency.position < own, &field, || {
            "must be a job before it in the pipeline".to_owned()
        });
        found.check(named.insert(dependency.position), &field, || {
            "is named twice; each dependency has one condition".to_owned()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::single;

    fn job(name: &str, after: &[u32]) -> PipelineJob {
        let when = Condition::Succeeded;
        let after = after
            .iter()
            .map(|position| PipelineDependency {
                position: *position,
                when,
            })
            .collect();
        PipelineJob {
            spec: Arc::new(single(name, 1, 0)),
            after,
        }
    }

    fn broken(jobs: Vec<PipelineJob>) -> Vec<String> {
        let name = "nightly".to_owned();
        let violations = validate_pipeline(&Pipeline { name, jobs });
        violations.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn jobs_wait_for_those_before_them_only() {
        let good = vec![job("a", &[]), job("b", &[0]), job("c", &[0, 1])];
        assert_eq!(broken(good), [""; 0]);
        let own = broken(vec![job("a", &[0])]);
        assert_eq!(
            own,
            ["jobs[0].after[0].job: must be a job before it in the pipeline"]
        );
        let twice = broken(vec![job("a", &[]), job("b", &[0, 0])]);
        assert!(
            twice[0].starts_with("jobs[1].after[1].job: is named twice"),
            "{twice:?}"
        );
    }

    #[test]
    fn names_are_unique_the_user_is_one_and_limits_have_names() {
        let same = broken(vec![job("a", &[]), job("a", &[])]);
        assert_eq!(same, ["jobs[1].name: `a` names two jobs of the pipeline"]);
        let mut other = job("b", &[]);
        Arc::make_mut(&mut other.spec).user = "grace".to_owned();
        let users = broken(vec![job("a", &[]), other]);
        assert!(
            users[0].starts_with("jobs[1].user: must be the user"),
            "{users:?}"
        );
        let jobs = (0..=limits::PIPELINE_JOBS_MAX).map(|number| job(&format!("j{number}"), &[]));
        let many = broken(jobs.collect());
        assert!(many[0].contains("PIPELINE_JOBS_MAX"), "{many:?}");
        assert!(broken(Vec::new())[0].contains("at least one job"));
        let mut bad = job("b", &[]);
        Arc::make_mut(&mut bad.spec).groups[0].count = 0;
        assert_eq!(
            broken(vec![job("a", &[]), bad]),
            ["jobs[1].groups[0].count: must be at least 1"]
        );
    }
}
