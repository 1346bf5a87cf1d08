//! Pipelines in the log.

use std::sync::Arc;

use muster_model::command::Command;
use muster_model::ids::RequestKey;
use muster_model::spec::{JobSpec, Pipeline, PipelineDependency, PipelineJob};
use muster_proto::convert::{condition_from_wire, condition_to_wire};
use muster_proto::field::{Twin, required};

use crate::error::Field;
use crate::v1;

pub(super) fn to_wire(request: RequestKey, pipeline: &Pipeline) -> v1::SubmitPipeline {
    let jobs = pipeline.jobs.iter().map(|job| v1::PipelineJob {
        spec: Some(job.spec.as_ref().into()),
        after: job
            .after
            .iter()
            .map(|dependency| v1::PipelineDependency {
                position: dependency.position,
                when: condition_to_wire(dependency.when).into(),
            })
            .collect(),
    });
    v1::SubmitPipeline {
        request: request.to_wire(),
        name: pipeline.name.clone(),
        jobs: jobs.collect(),
    }
}

pub(super) fn from_wire(wire: v1::SubmitPipeline) -> Field<Command> {
    let jobs = wire.jobs.into_iter().map(job_from_wire);
    let pipeline = Pipeline {
        name: wire.name,
        jobs: jobs.collect::<Result<_, _>>()?,
    };
    Ok(Command::SubmitPipeline {
        request: RequestKey::from_wire("submit_pipeline.request", wire.request)?,
        pipeline: Arc::new(pipeline),
    })
}

fn job_from_wire(wire: v1::PipelineJob) -> Field<PipelineJob> {
    let spec = JobSpec::try_from(required("spec", wire.spec)?)?;
    let after = wire.after.into_iter().map(|dependency| {
        Ok(PipelineDependency {
            position: dependency.position,
            when: condition_from_wire(dependency.when)?,
        })
    });
    Ok(PipelineJob {
        spec: Arc::new(spec),
        after: after.collect::<Field<_>>()?,
    })
}
