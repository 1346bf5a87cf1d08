//! Pipelines: submissions and the client interface.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::state::State;
use muster_model::command::Command;
use muster_model::ids::PipelineId;
use muster_model::lifecycle::JobPhase;
use muster_model::limits::PIPELINE_BYTES_MAX;
use muster_model::rejection::Rejection;
use muster_model::spec::{JobSpec, Pipeline, PipelineDependency, PipelineJob, validate_pipeline};
use prost::Message;

use crate::convert::job_life::{condition_from_wire, condition_to_wire};
use crate::convert::request_key::request_key;
use crate::convert::{InvalidField, job_to_wire, required};
use crate::v1;

/// Converts a pipeline's submission to a command, fills in defaults and checks every rule that needs no
/// state.
///
/// # Errors
/// `InvalidRequest` for an invalid request id, `InvalidSpec` with every violated rule of the specification.
pub fn submit_pipeline_command(request: v1::SubmitPipelineRequest) -> Result<Command, Rejection> {
    let key = request_key("submit_pipeline", &request.request_id, &request)?;
    let spec = required("spec", request.spec)?;
    let size_bytes = spec.encoded_len();
    let invalid = |invalid: InvalidField| Rejection::InvalidSpec(vec![invalid.into()]);
    if size_bytes > PIPELINE_BYTES_MAX {
        let rule = format!(
            "{size_bytes} encoded bytes are over the limit of {PIPELINE_BYTES_MAX} (PIPELINE_BYTES_MAX)"
        );
        return Err(invalid(InvalidField::new("spec", rule)));
    }
    let pipeline = Pipeline::try_from(spec).map_err(invalid)?;
    let violations = validate_pipeline(&pipeline);
    if !violations.is_empty() {
        return Err(Rejection::InvalidSpec(violations));
    }
    Ok(Command::SubmitPipeline {
        request: key,
        pipeline: Arc::new(pipeline),
    })
}

impl TryFrom<v1::PipelineSpec> for Pipeline {
    type Error = InvalidField;

    fn try_from(wire: v1::PipelineSpec) -> Result<Self, InvalidField> {
        let mut positions: BTreeMap<String, u32> = BTreeMap::new();
        let mut jobs = Vec::new();
        for (number, job) in (0..).zip(wire.jobs) {
            let at = usize::try_from(number).unwrap_or(usize::MAX);
            let within = |invalid: InvalidField| invalid.within_item("jobs", at);
            let spec = required("spec", job.spec).map_err(within)?;
            let spec = JobSpec::try_from(spec).map_err(within)?;
            let after = job.after.into_iter().enumerate();
            let after = after
                .map(|(item, dependency)| {
                    dependency_from_wire(&positions, dependency)
                        .map_err(|invalid| within(invalid.within_item("after", item)))
                })
                .collect::<Result<_, _>>()?;
            // A pipeline with duplicate job names is rejected anyway.
            positions.insert(spec.name.clone(), number);
            jobs.push(PipelineJob {
                spec: Arc::new(spec),
                after,
            });
        }
        let name = wire.name;
        Ok(Self { name, jobs })
    }
}

fn dependency_from_wire(
    positions: &BTreeMap<String, u32>,
    wire: v1::PipelineDependency,
) -> Result<PipelineDependency, InvalidField> {
    let when = condition_from_wire(wire.when)?;
    let position = positions.get(&wire.job).copied();
    let unknown = || {
        let rule = format!("`{}` is not an earlier job of the pipeline", wire.job);
        InvalidField::new("job", rule)
    };
    Ok(PipelineDependency {
        position: position.ok_or_else(unknown)?,
        when,
    })
}

impl From<&Pipeline> for v1::PipelineSpec {
    fn from(pipeline: &Pipeline) -> Self {
        let name_of = |position: u32| {
            let job = usize::try_from(position).map(|position| pipeline.jobs.get(position));
            job.ok()
                .flatten()
                .map_or_else(String::new, |job| job.spec.name.clone())
        };
        let jobs = pipeline.jobs.iter().map(|job| v1::PipelineJob {
            spec: Some(job.spec.as_ref().into()),
            after: job
                .after
                .iter()
                .map(|dependency| v1::PipelineDependency {
                    job: name_of(dependency.position),
                    when: condition_to_wire(dependency.when).into(),
                })
                .collect(),
        });
        Self {
            name: pipeline.name.clone(),
            jobs: jobs.collect(),
        }
    }
}

/// A pipeline in the client interface; none if the id is unknown, or all of its jobs are forgotten.
#[must_use]
pub fn pipeline_to_wire(state: &State, id: PipelineId) -> Option<v1::Pipeline> {
    let first = state.jobs_of(id).next()?;
    let mark = first.pipeline.as_ref()?;
    let mut counts = v1::PipelineCounts::default();
    for job in state.jobs_of(id) {
        *match job.phase {
            JobPhase::Queued => &mut counts.queued,
            JobPhase::Running | JobPhase::Cancelling => &mut counts.running,
            JobPhase::Succeeded => &mut counts.succeeded,
            JobPhase::Failed if job.is_skipped() => &mut counts.skipped,
            JobPhase::Failed => &mut counts.failed,
            JobPhase::Cancelled => &mut counts.cancelled,
        } += 1;
    }
    let phase = phase_of(&counts);
    let ends = state.jobs_of(id).map(|job| job.finished_at);
    let last_end = ends.max().flatten().filter(|_| phase.is_terminal());
    Some(v1::Pipeline {
        id: id.get(),
        name: mark.name.clone(),
        user: first.spec.user.clone(),
        submitted_at_ms: first.submitted_at.0,
        phase: v1::JobPhase::from(phase).into(),
        finished_at_ms: last_end.map(|at| at.0),
        counts: Some(counts),
    })
}

/// A pipeline with its jobs.
#[must_use]
pub fn pipeline_with_jobs(state: &State, id: PipelineId) -> Option<v1::GetPipelineResponse> {
    Some(v1::GetPipelineResponse {
        revision: state.revision.get(),
        pipeline: Some(pipeline_to_wire(state, id)?),
        jobs: state.jobs_of(id).map(job_to_wire).collect(),
    })
}

/// Phase of a pipeline, derived from the phases of its jobs.
fn phase_of(counts: &v1::PipelineCounts) -> JobPhase {
    let ended = counts.succeeded + counts.failed + counts.cancelled + counts.skipped;
    match (counts.queued, counts.running) {
        (0, 0) if counts.failed > 0 => JobPhase::Failed,
        (0, 0) if counts.cancelled > 0 => JobPhase::Cancelled,
        (0, 0) => JobPhase::Succeeded,
        (_, 0) if ended == 0 => JobPhase::Queued,
        _ => JobPhase::Running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_succeeds_although_jobs_were_skipped_and_fails_with_any_other() {
        let of = |queued, running, succeeded, failed, cancelled, skipped| {
            phase_of(&v1::PipelineCounts {
                queued,
                running,
                succeeded,
                failed,
                cancelled,
                skipped,
            })
        };
        assert_eq!(of(2, 0, 0, 0, 0, 0), JobPhase::Queued);
        assert_eq!(of(1, 0, 1, 0, 0, 0), JobPhase::Running);
        assert_eq!(of(1, 1, 0, 0, 0, 0), JobPhase::Running);
        assert_eq!(of(0, 0, 2, 0, 0, 1), JobPhase::Succeeded);
        assert_eq!(of(0, 0, 1, 1, 1, 1), JobPhase::Failed);
        assert_eq!(of(0, 0, 1, 0, 1, 1), JobPhase::Cancelled);
    }
}
