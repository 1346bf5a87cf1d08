//! `WatchService`.

pub(super) mod access_guard;
pub(super) mod until_stopped;

use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::Duration;

use futures::Stream;
use futures::stream::unfold;
use muster_engine::state::State;
use muster_model::event::{Event, EventKind};
use muster_model::ids::{JobId, Revision};
use muster_proto::status::{self, compacted};
use muster_proto::v1;
use muster_proto::v1::watch_service_server::WatchService;
use tonic::{Code, Request, Response, Status};

use crate::service::context::Context;
use crate::service::gate::{Caller, caller_of};
use crate::watch_hub::{SubscribeError, Subscription, WatchEnd, WatchFilter};

/// Jobs in one filter.
const FILTERED_JOBS_MAX: usize = 10_000;
/// Retry delay for a watcher that was refused for load.
const RETRY_FULL: Duration = Duration::from_secs(1);
/// Metadata of an ended watch: the revision to resume from.
const RESUME_KEY: &str = "from_revision";

/// `WatchService` of one replica.
pub(crate) struct Watches(pub(crate) Context);

#[tonic::async_trait]
impl WatchService for Watches {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::WatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let sight = Visibility {
            context: self.0.clone(),
            caller: caller_of(&request),
        };
        let request = request.into_inner();
        let from = request.from_revision.map(Revision);
        let filter = filter(&request)?;
        let subscription = self
            .0
            .hub
            .subscribe(|| self.0.fork(), from, filter)
            .map_err(refused)?;
        Ok(Response::new(Box::pin(stream(subscription, sight))))
    }
}

fn filter(request: &v1::WatchRequest) -> Result<WatchFilter, Status> {
    if request.job_ids.len() > FILTERED_JOBS_MAX {
        let message = format!(
            "job_ids: {} are over the limit of {FILTERED_JOBS_MAX} (FILTERED_JOBS_MAX)",
            request.job_ids.len()
        );
        return Err(status::error(
            Code::InvalidArgument,
            "INVALID_REQUEST",
            &message,
            &[],
        ));
    }
    let kinds = request
        .kinds
        .iter()
        .map(|number| {
            v1::EventKind::try_from(*number).map_err(|_| {
                let message = format!("kinds: unknown value {number}");
                status::error(Code::InvalidArgument, "INVALID_REQUEST", &message, &[])
            })
        })
        .collect::<Result<BTreeSet<_>, _>>()?;
    Ok(WatchFilter {
        jobs: request.job_ids.iter().copied().map(JobId).collect(),
        kinds,
    })
}

fn refused(error: SubscribeError) -> Status {
    let message = error.to_string();
    match error {
        SubscribeError::Compacted(gone) => compacted(gone.compacted),
        SubscribeError::Full { limit } => {
            let metadata = [
                ("limit_name", "watches_max".to_owned()),
                ("limit", limit.to_string()),
            ];
            // Another replica may have room, and this one will when a watcher leaves.
            let code = Code::ResourceExhausted;
            status::retryable(code, "OVERLOADED", &message, &metadata, RETRY_FULL)
        }
    }
}

/// Streams answers until the watch ends, which is the last item.
fn stream(
    subscription: Subscription,
    sight: Visibility,
) -> impl Stream<Item = Result<v1::WatchResponse, Status>> {
    unfold(Some((subscription, sight)), |watch| async move {
        let (mut subscription, sight) = watch?;
        match subscription.next().await {
            Ok((revision, events)) => {
                let seen = response(revision, &events, |event| sight.has(event));
                Some((Ok(seen), Some((subscription, sight))))
            }
            Err(end) => Some((Err(ended(end, subscription.position())), None)),
        }
    })
}

/// Visibility of events for a watcher, by its current role.
struct Visibility {
    context: Context,
    caller: Caller,
}

impl Visibility {
    /// Events of forgotten jobs are shown only to callers that see all jobs.
    fn has(&self, event: &Event) -> bool {
        let sees = |state: &State| match (&event.kind, event.kind.job()) {
            (_, Some(job)) => {
                let job = state.job(job);
                job.is_some_and(|job| self.caller.can_view(state, job))
            }
            (EventKind::AccessChanged(change), None) if change.is_for_admins() => {
                self.caller.is_admin(state) == Some(true)
            }
            // A user removed meanwhile sees nothing more.
            (_, None) => self.caller == Caller::Replica || self.caller.role(state).is_some(),
        };
        self.caller == Caller::AuthenticationOff || self.context.handle.with_state(sees)
    }
}

fn response(
    revision: Revision,
    events: &[Event],
    is_seen: impl Fn(&Event) -> bool,
) -> v1::WatchResponse {
    v1::WatchResponse {
        revision: revision.get(),
        time_ms: events.first().map_or(0, |event| event.time.0),
        events: events
            .iter()
            .filter(|event| is_seen(event))
            .map(|event| (&event.kind).into())
            .collect(),
    }
}

fn ended(end: WatchEnd, position: Revision) -> Status {
    let metadata = [(RESUME_KEY, position.to_string())];
    match end {
        WatchEnd::TooSlow => {
            let message = format!("this client does not keep up; resume from revision {position}");
            status::error(
                Code::ResourceExhausted,
                "WATCH_TOO_SLOW",
                &message,
                &metadata,
            )
        }
        WatchEnd::Stopped => {
            let message =
                format!("this replica is stopping; resume from revision {position} at another one");
            status::error(Code::Unavailable, "STOPPED", &message, &metadata)
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_proto::status::ErrorReport;

    use super::*;

    #[test]
    fn a_watch_over_the_limit_is_refused_with_a_retry_delay() {
        let report = ErrorReport::of(&refused(SubscribeError::Full { limit: 1 }));
        assert_eq!(report.reason, "OVERLOADED");
        assert_eq!(report.retry_after, Some(RETRY_FULL));
    }
}
