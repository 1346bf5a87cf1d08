//! Samples of the fourth version: stop orders with author and beneficiary; jobs whose early history was
//! dropped.

use std::sync::Arc;

use muster_engine::state::{EventGaps, EventLog, State};
use muster_model::command::{StopCause, StopReason};
use muster_model::event::{Event, EventKind};
use muster_model::ids::{AttemptEpoch, HostId, Revision, TaskIndex, UnitIndex};
use muster_model::job::StopOrder;
use muster_model::time::TimeMs;

use crate::frozen::samples::JOB;
use crate::frozen::samples::retries::{DEFAULTS, change_units};

/// The first version's state, with attempts that have stop causes, and their events. Earlier events were
/// dropped.
pub(crate) fn state() -> State {
    let mut parts = super::state::parts();
    parts.job_defaults = Some(DEFAULTS);
    let cause = StopCause::new(
        StopReason::Preempted,
        "job 30 (urgent), unit 0, of queue research with priority 5".to_owned(),
    );
    change_units(&mut parts, |unit| {
        if let Some(attempt) = &mut unit.attempt {
            let order = StopOrder::new(cause.clone(), TimeMs(4_000), 45_000);
            Arc::make_mut(attempt).stop = Some(order);
        }
    });
    let (unit, epoch) = (UnitIndex(0), AttemptEpoch(42));
    let host = HostId(2);
    let kinds = [
        EventKind::AttemptStopping {
            job: JOB,
            unit,
            epoch,
            cause,
        },
        EventKind::MemberLeaving {
            job: JOB,
            unit,
            epoch,
            task: TaskIndex(1),
            host,
            cause: StopCause::new(
                StopReason::Drain { host },
                "by grace: a new disk".to_owned(),
            ),
        },
    ];
    let losses = EventGaps {
        settled_up_to: Revision(8),
        marks: vec![(None, Revision(7)), (Some(JOB), Revision(8))],
    };
    let events = kinds.map(|kind| Event {
        revision: Revision(9),
        time: TimeMs(900),
        kind,
    });
    let revisions = vec![(Revision(9), events.into_iter().collect())];
    parts.events = EventLog::restore(Revision(6), losses, revisions);
    State::restore(parts)
}
