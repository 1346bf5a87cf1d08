//! Reading of pipelines.

use muster_engine::state::State;
use muster_model::ids::PipelineId;
use muster_model::rejection::Rejection;
use muster_proto::status::status_of;
use muster_proto::v1;
use tonic::Status;

use crate::service::gate::Caller;
use crate::service::read::page::{self, Page};
use crate::view::{pipeline_to_wire, pipeline_with_jobs};

/// One pipeline with its jobs.
pub(crate) fn get(state: &State, id: PipelineId) -> Result<v1::GetPipelineResponse, Status> {
    pipeline_with_jobs(state, id).ok_or_else(|| status_of(&Rejection::UnknownPipeline(id)))
}

/// One page of the pipelines that match.
pub(crate) fn list(
    state: &State,
    caller: &Caller,
    request: &v1::ListPipelinesRequest,
    limit: page::Limit,
) -> Result<v1::ListPipelinesResponse, Status> {
    let mut page = Page::new(request.page_size, limit);
    let newest = match page::parse::<1>("page_token", &request.page_token)? {
        None => PipelineId(u64::MAX),
        Some([id]) => PipelineId(id),
    };
    let mut next_page_token = String::new();
    let known = state.index.pipelines.range(..=newest).rev();
    for (examined, (id, _)) in known.enumerate() {
        if page.is_full() || examined == page::EXAMINED_ROWS_MAX {
            next_page_token = id.to_string();
            break;
        }
        if !state.jobs_of(*id).all(|job| caller.can_view(state, job)) {
            continue;
        }
        let pipeline = pipeline_to_wire(state, *id);
        if let Some(pipeline) = pipeline.filter(|pipeline| matches(pipeline, request)) {
            page.add(pipeline);
        }
    }
    Ok(v1::ListPipelinesResponse {
        revision: state.revision.get(),
        pipelines: page.into_rows(),
        next_page_token,
    })
}

fn matches(pipeline: &v1::Pipeline, request: &v1::ListPipelinesRequest) -> bool {
    (request.user.is_empty() || pipeline.user == request.user)
        && (request.name.is_empty() || pipeline.name.contains(&request.name))
}
