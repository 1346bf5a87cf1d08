//! The table of legal transitions.

use muster_model::health::Phase;

use crate::component::Event;

/// Previous phase, event, next phase. Anything else is refused.
///
/// The only automatic way out of an admin's decision is its expiry, and no repair without a check leads back
/// into placement.
pub const TRANSITIONS: &[(Phase, Event, Phase)] = &[
    (Phase::Healthy, Event::Suspect, Phase::Suspect),
    (Phase::Healthy, Event::Drain, Phase::Draining),
    (Phase::Healthy, Event::Block, Phase::Blocked),
    (Phase::Healthy, Event::Condemn, Phase::Rma),
    (Phase::Healthy, Event::AdminDrain, Phase::DrainingAdmin),
    (Phase::Healthy, Event::AdminBlock, Phase::BlockedAdmin),
    // A rule may restrict a component that is otherwise healthy: that ends.
    (Phase::Healthy, Event::AdminUnblock, Phase::Healthy),
    (Phase::Healthy, Event::AdminCondemn, Phase::Rma),
    (Phase::Suspect, Event::Clear, Phase::Healthy),
    (Phase::Suspect, Event::CheckBegan, Phase::Checking),
    (Phase::Suspect, Event::Drain, Phase::Draining),
    (Phase::Suspect, Event::Block, Phase::Blocked),
    (Phase::Suspect, Event::Condemn, Phase::Rma),
    (Phase::Suspect, Event::AdminDrain, Phase::DrainingAdmin),
    (Phase::Suspect, Event::AdminBlock, Phase::BlockedAdmin),
    (Phase::Suspect, Event::AdminUnblock, Phase::Healthy),
    (Phase::Suspect, Event::AdminCondemn, Phase::Rma),
    (Phase::Draining, Event::Clear, Phase::Healthy),
    (Phase::Draining, Event::Drained, Phase::Blocked),
    (Phase::Draining, Event::Block, Phase::Blocked),
    (Phase::Draining, Event::Condemn, Phase::Rma),
    (Phase::Draining, Event::AdminDrain, Phase::DrainingAdmin),
    (Phase::Draining, Event::AdminBlock, Phase::BlockedAdmin),
    (Phase::Draining, Event::AdminUnblock, Phase::Healthy),
    (Phase::Draining, Event::AdminCondemn, Phase::Rma),
    (Phase::DrainingAdmin, Event::Drained, Phase::BlockedAdmin),
    (Phase::DrainingAdmin, Event::Expired, Phase::Healthy),
    (
        Phase::DrainingAdmin,
        Event::AdminDrain,
        Phase::DrainingAdmin,
    ),
    (Phase::DrainingAdmin, Event::AdminBlock, Phase::BlockedAdmin),
    (Phase::DrainingAdmin, Event::AdminUnblock, Phase::Healthy),
    (Phase::DrainingAdmin, Event::AdminCondemn, Phase::Rma),
    (Phase::Blocked, Event::Block, Phase::Blocked),
    (Phase::Blocked, Event::Condemn, Phase::Rma),
    (Phase::Blocked, Event::RepairBegan, Phase::Repairing),
    (Phase::Blocked, Event::CheckBegan, Phase::Checking),
    (Phase::Blocked, Event::Clear, Phase::Checking),
    (Phase::Blocked, Event::AdminDrain, Phase::DrainingAdmin),
    (Phase::Blocked, Event::AdminBlock, Phase::BlockedAdmin),
    (Phase::Blocked, Event::AdminUnblock, Phase::Healthy),
    (Phase::Blocked, Event::AdminCondemn, Phase::Rma),
    (Phase::BlockedAdmin, Event::Expired, Phase::Healthy),
    (Phase::BlockedAdmin, Event::AdminDrain, Phase::DrainingAdmin),
    (Phase::BlockedAdmin, Event::AdminBlock, Phase::BlockedAdmin),
    (Phase::BlockedAdmin, Event::AdminUnblock, Phase::Healthy),
    (Phase::BlockedAdmin, Event::AdminCondemn, Phase::Rma),
    (Phase::Repairing, Event::Condemn, Phase::Rma),
    (Phase::Repairing, Event::RepairDone, Phase::Checking),
    (Phase::Repairing, Event::RepairFailed, Phase::Blocked),
    (Phase::Repairing, Event::AdminBlock, Phase::BlockedAdmin),
    (Phase::Repairing, Event::AdminUnblock, Phase::Healthy),
    (Phase::Repairing, Event::AdminCondemn, Phase::Rma),
    (Phase::Checking, Event::Block, Phase::Blocked),
    (Phase::Checking, Event::Condemn, Phase::Rma),
    (Phase::Checking, Event::CheckPassed, Phase::Probation),
    (Phase::Checking, Event::CheckFailed, Phase::Blocked),
    (Phase::Checking, Event::AdminBlock, Phase::BlockedAdmin),
    (Phase::Checking, Event::AdminUnblock, Phase::Healthy),
    (Phase::Checking, Event::AdminCondemn, Phase::Rma),
    (Phase::Probation, Event::Drain, Phase::Draining),
    (Phase::Probation, Event::Block, Phase::Blocked),
    (Phase::Probation, Event::Condemn, Phase::Rma),
    (Phase::Probation, Event::ProbationPassed, Phase::Healthy),
    (Phase::Probation, Event::ProbationFailed, Phase::Blocked),
    (Phase::Probation, Event::AdminDrain, Phase::DrainingAdmin),
    (Phase::Probation, Event::AdminBlock, Phase::BlockedAdmin),
    (Phase::Probation, Event::AdminUnblock, Phase::Healthy),
    (Phase::Probation, Event::AdminCondemn, Phase::Rma),
    (Phase::Rma, Event::AdminBlock, Phase::BlockedAdmin),
    (Phase::Rma, Event::AdminUnblock, Phase::Healthy),
];

/// Next phase after an event; `None` if it is not legal in this phase.
#[must_use]
pub fn next(from: Phase, event: Event) -> Option<Phase> {
    let is_it = |row: &&(Phase, Event, Phase)| row.0 == from && row.1 == event;
    TRANSITIONS.iter().find(is_it).map(|row| row.2)
}
