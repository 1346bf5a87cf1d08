//! Pipelines.

use muster_engine::state::State;
use muster_model::ids::PipelineId;
use muster_model::lifecycle::JobPhase;
use muster_proto::v1;

use crate::view::job::job_to_wire;

/// A pipeline; none if the id is unknown, or all of its jobs are forgotten.
pub(crate) fn pipeline_to_wire(state: &State, id: PipelineId) -> Option<v1::Pipeline> {
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
pub(crate) fn pipeline_with_jobs(state: &State, id: PipelineId) -> Option<v1::GetPipelineResponse> {
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
