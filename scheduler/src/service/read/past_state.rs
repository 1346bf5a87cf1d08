//! State of the cluster at a past revision, for reads that request one.
//!
//! A replica rebuilds one such state at a time, off the async threads, and keeps the last one for a while:
//! users tend to ask several questions about one moment. So there are at most two states beside the present
//! one in memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use metrics::{counter, histogram};
use muster_engine::state::State;
use muster_proto::status;
use muster_raft_store::{Handle, StateHistoryError};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use crate::metrics::names;
use crate::service::context::Context;

/// Past states that a replica rebuilds at a time.
const VIEWS_MAX: usize = 1;
/// Longest rebuild, whatever the caller's deadline: it keeps a core busy. Two intervals of 10,000 entries
/// with fifty commands each are a million commands.
const VIEW_MAX: Duration = Duration::from_secs(60);
/// Time that the last one is kept after its last use.
const KEPT: Duration = Duration::from_secs(60);
/// Retry delay after a refusal for load, or a timeout.
const RETRY: Duration = Duration::from_millis(500);

/// A state, rebuilt or in progress; each waiting caller gets a clone.
type SharedView = Shared<BoxFuture<'static, Result<State, StateHistoryError>>>;

/// Views of past revisions; clones share them.
#[derive(Clone, Default)]
pub(crate) struct PastViews(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    view: Option<View>,
    /// Distinguishes views of one revision.
    serial: u64,
}

struct View {
    revision: u64,
    state: SharedView,
    serial: u64,
    used: Instant,
}

/// The state at a revision. Access is decided by the current rights.
pub(crate) async fn state(
    context: &Context,
    revision: u64,
    deadline: Instant,
) -> Result<State, Status> {
    let rebuilt = match context.views().of(context, revision) {
        Some(shared) => timeout_at(deadline, shared).await,
        None => {
            count("busy");
            return Err(busy());
        }
    };
    let (outcome, answer) = match rebuilt {
        Ok(Ok(state)) => ("shown", Ok(state)),
        Ok(Err(error)) => {
            let (outcome, status) = refused(&error);
            (outcome, Err(status))
        }
        Err(_) => ("late", Err(late(revision))),
    };
    count(outcome);
    let mut state = answer?;
    state.users = context.handle.with_state(|now| now.users.clone());
    Ok(state)
}

fn count(outcome: &'static str) {
    counter!(names::PAST_VIEWS_TOTAL, "outcome" => outcome).increment(1);
}

impl PastViews {
    /// The state at a revision; `None` while another one is rebuilt.
    fn of(&self, context: &Context, revision: u64) -> Option<SharedView> {
        let mut slot = lock(&self.0);
        let before = slot.view.as_mut();
        if let Some(view) = before {
            let finished = view.state.clone().now_or_never();
            let has_failed = matches!(finished, Some(Err(_)));
            if view.revision == revision && !has_failed {
                view.used = Instant::now();
                return Some(view.state.clone());
            }
            // Another revision is still being rebuilt.
            finished.as_ref()?;
        }
        let old = slot.view.take();
        let state = rebuild(&context.handle, &context.stop, revision, old);
        slot.serial += 1;
        slot.view = Some(View {
            revision,
            state: state.clone(),
            serial: slot.serial,
            used: Instant::now(),
        });
        let forgetting = forget(Arc::downgrade(&self.0), slot.serial, state.clone());
        tokio::spawn(context.stop.clone().run_until_cancelled_owned(forgetting));
        Some(state)
    }
}

/// Locks the slot briefly; a panic inside leaves no partial change.
fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rebuilds a state on a separate thread; the old one is dropped there first.
fn rebuild(
    handle: &Handle<State>,
    stop: &CancellationToken,
    revision: u64,
    old: Option<View>,
) -> SharedView {
    let (handle, stop) = (handle.clone(), stop.clone());
    let rebuilding = tokio::task::spawn_blocking(move || {
        drop(old);
        let began = Instant::now();
        let may_continue = || began.elapsed() < VIEW_MAX && !stop.is_cancelled();
        let result = handle.state_at(revision, &may_continue);
        if result.is_ok() {
            histogram!(names::PAST_VIEW_SECONDS).record(began.elapsed());
        }
        result
    });
    let state = rebuilding.map(|joined| {
        joined.unwrap_or_else(|error| {
            Err(StateHistoryError::Unreadable {
                what: "the past".to_owned(),
                detail: error.to_string(),
            })
        })
    });
    state.boxed().shared()
}

/// Drops a view that was not used for a while.
async fn forget(slot: Weak<Mutex<Slot>>, serial: u64, state: SharedView) {
    drop(state.await);
    loop {
        sleep(KEPT).await;
        let Some(slot) = slot.upgrade() else { return };
        let mut slot = lock(&slot);
        match &slot.view {
            Some(view) if view.serial == serial => {
                if view.used.elapsed() >= KEPT {
                    let old = slot.view.take();
                    tokio::task::spawn_blocking(move || drop(old));
                    return;
                }
            }
            _ => return,
        }
    }
}

/// Metric label and status of a failed rebuild.
fn refused(error: &StateHistoryError) -> (&'static str, Status) {
    let number = |key, revision: &u64| (key, revision.to_string());
    let out_of_range = |reason, message: &str, facts: &[(&str, String)]| {
        let status = status::error(Code::OutOfRange, reason, message, facts);
        ("refused", status)
    };
    let message = error.to_string();
    match error {
        StateHistoryError::NotReached { newest, .. } => {
            out_of_range("REVISION_AHEAD", &message, &[number("newest", newest)])
        }
        StateHistoryError::TooOld { oldest, .. } => out_of_range(
            "REVISION_TOO_OLD",
            &format!(
                "{message}; another replica may keep more, and backups reach further back: `muster \
                 snapshot inspect` shows the revision of a backup"
            ),
            &[number("oldest", oldest)],
        ),
        StateHistoryError::WithinCommand { before, after, .. } => out_of_range(
            "REVISION_INSIDE",
            &message,
            &[number("before", before), number("after", after)],
        ),
        StateHistoryError::Aborted { .. } => {
            let limit = VIEW_MAX.as_secs();
            let message = format!("{message}, which is limited to {limit} s (VIEW_MAX)");
            let reason = "VIEW_TOO_LONG";
            let status = status::error(Code::ResourceExhausted, reason, &message, &[]);
            ("failed", status)
        }
        StateHistoryError::Stopped | StateHistoryError::Unreadable { .. } => {
            tracing::error!(%error, "cannot rebuild a past state");
            let unavailable = Code::Unavailable;
            let status = status::retryable(unavailable, "UNREADABLE", &message, &[], RETRY);
            ("failed", status)
        }
    }
}

fn busy() -> Status {
    let message = format!(
        "this replica is busy rebuilding another revision, {VIEWS_MAX} at a time (VIEWS_MAX); try again"
    );
    let facts = [
        ("limit_name", "VIEWS_MAX".to_owned()),
        ("limit", VIEWS_MAX.to_string()),
    ];
    status::retryable(
        Code::ResourceExhausted,
        "OVERLOADED",
        &message,
        &facts,
        RETRY,
    )
}

fn late(revision: u64) -> Status {
    status::retryable(
        Code::DeadlineExceeded,
        "VIEW_NOT_READY",
        &format!("the state at revision {revision} is still being rebuilt; try again"),
        &[],
        RETRY,
    )
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_proto::status::ErrorReport;

    use super::*;

    #[test]
    fn a_refusal_names_the_oldest_available_revision() {
        let too_old = StateHistoryError::TooOld {
            asked: 7,
            oldest: 42,
        };
        let (outcome, status) = refused(&too_old);
        assert_eq!((outcome, status.code()), ("refused", Code::OutOfRange));
        assert!(status.message().contains("begins at 42"), "{status}");
        assert!(
            status.message().contains("muster snapshot inspect"),
            "{status}"
        );
        let report = ErrorReport::of(&status);
        assert_eq!(report.reason, "REVISION_TOO_OLD");
        assert_eq!(report.metadata["oldest"], "42");
    }

    #[test]
    fn refusals_for_load_and_timeouts_name_a_retry_delay() {
        for status in [busy(), late(7)] {
            assert_eq!(ErrorReport::of(&status).retry_after, Some(RETRY));
        }
    }

    /// A finished view at this revision.
    fn view(revision: u64) -> PastViews {
        let views = PastViews::default();
        let state = async { Ok(State::default()) }.boxed().shared();
        lock(&views.0).view = Some(View {
            revision,
            state,
            serial: 0,
            used: Instant::now(),
        });
        views
    }

    #[tokio::test(start_paused = true)]
    async fn a_view_is_dropped_after_a_period_without_use() {
        let views = view(7);
        let state = lock(&views.0).view.as_ref().unwrap().state.clone();
        let forgetting = tokio::spawn(forget(Arc::downgrade(&views.0), 0, state));
        sleep(KEPT / 2).await;
        lock(&views.0).view.as_mut().unwrap().used = Instant::now();
        sleep(KEPT).await;
        assert!(lock(&views.0).view.is_some(), "the view was used");
        sleep(KEPT).await;
        assert!(lock(&views.0).view.is_none(), "the view was not used");
        forgetting.await.unwrap();
    }
}
