//! Pipelines and their submission.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::command::Command;
use muster_model::limits::PIPELINE_BYTES_MAX;
use muster_model::rejection::Rejection;
use muster_model::spec::{JobSpec, Pipeline, PipelineDependency, PipelineJob, validate_pipeline};
use prost::Message;

use crate::convert::jobs::job_life::{condition_from_wire, condition_to_wire};
use crate::convert::request_key::request_key;
use crate::field::{InvalidField, required};
use crate::v1;

/// Converts a pipeline's submission to a command, fills in defaults and checks every rule that needs no
/// state.
///
/// # Errors
/// `InvalidRequest` for an invalid request id, `InvalidSpec` with every violated rule of the specification.
pub fn submit_pipeline_command(
    mut request: v1::SubmitPipelineRequest,
) -> Result<Command, Rejection> {
    request.validate_only = false;
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
