//! Pipelines: all of their jobs are accepted in one step, or none is.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::ids::{JobId, PipelineId, RequestKey, Revision};
use muster_model::limits;
use muster_model::rejection::Rejection;
use muster_model::spec::{
    Dependency, JobSpec, Pipeline, PipelineJob, Violation, validate_pipeline,
};

use crate::apply::job::{dependencies, unsatisfiable};
use crate::apply::{Step, violation};
use crate::state::{Answer, PipelineMark, State};

impl Step<'_> {
    pub(in crate::apply) fn submit_pipeline(
        &mut self,
        request: RequestKey,
        pipeline: &Pipeline,
    ) -> Result<Answer, Rejection> {
        self.once(request, |step| {
            let mut violations = validate_pipeline(pipeline);
            if violations.is_empty() {
                violations = of_state(step.state, pipeline);
            }
            if !violations.is_empty() {
                return Err(Rejection::InvalidSpec(violations));
            }
            step.enter_queues(pipeline)?;
            Ok(Answer::Pipeline(step.add_pipeline(pipeline)))
        })
    }

    /// Counts every job as live in its queue, or none.
    fn enter_queues(&mut self, pipeline: &Pipeline) -> Result<(), Rejection> {
        let mut wanted: BTreeMap<&str, u64> = BTreeMap::new();
        for job in &pipeline.jobs {
            *wanted.entry(&job.spec.queue).or_default() += 1;
        }
        for (queue, count) in &wanted {
            self.check_queue(queue, *count)?;
        }
        for (queue, count) in wanted {
            self.enter_queue(queue, count)?;
        }
        Ok(())
    }

    /// Adds a pipeline. Its id is the revision of its command; its jobs have the ids after it, and the
    /// command takes the revisions up to the last one's, so that no other job ever gets one of them.
    fn add_pipeline(&mut self, pipeline: &Pipeline) -> PipelineId {
        let id = PipelineId(self.state.revision.get());
        let jobs: Vec<JobId> = (id.get() + 1..)
            .map(JobId)
            .take(pipeline.jobs.len())
            .collect();
        if let Some(last) = jobs.last() {
            self.state.revision = Revision(last.get());
        }
        let mark = Arc::new(PipelineMark {
            id,
            name: pipeline.name.clone(),
        });
        for (job, own) in pipeline.jobs.iter().zip(&jobs) {
            self.add_job(*own, &spec_of(job, &jobs), Some(&mark));
        }
        id
    }
}

/// Returns a job's specification with the ids of its dependencies in the pipeline.
fn spec_of(job: &PipelineJob, jobs: &[JobId]) -> Arc<JobSpec> {
    if job.after.is_empty() {
        return Arc::clone(&job.spec);
    }
    let mut spec = JobSpec::clone(&job.spec);
    for dependency in &job.after {
        let position = usize::try_from(dependency.position).unwrap_or(usize::MAX);
        let other = jobs.get(position).copied();
        spec.lifecycle.after.push(Dependency {
            job: other.expect("a valid pipeline names jobs of its own"),
            when: dependency.when,
        });
    }
    Arc::new(spec)
}

/// Returns the requests that this cluster cannot satisfy and the dependencies that cannot be waited for.
fn of_state(state: &State, pipeline: &Pipeline) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut awaited: BTreeMap<JobId, usize> = BTreeMap::new();
    for (position, job) in pipeline.jobs.iter().enumerate() {
        let mut of_job = unsatisfiable::of_state(state, &job.spec);
        of_job.extend(dependencies::unfit(state, &job.spec));
        for dependency in &job.spec.lifecycle.after {
            *awaited.entry(dependency.job).or_default() += 1;
        }
        found.extend(of_job.into_iter().map(|rule| Violation {
            field: format!("jobs[{position}].{}", rule.field),
            ..rule
        }));
    }
    for (job, count) in awaited {
        if state.index.dependents_of(job).len() + count > limits::DEPENDENTS_MAX {
            let limit = limits::DEPENDENTS_MAX;
            let rule = format!("with these, over {limit} jobs wait for job {job} (DEPENDENTS_MAX)");
            found.push(violation("jobs", rule));
        }
    }
    found
}
