//! An event, as one line.

use muster_documents::event::{AccessChanged, Fact, Membership};
use muster_documents::{Event, HostHealth};

use crate::output::{Cell, Column, Table, Tone};
use crate::view::phase::phase_tone;

/// Column width that keeps the columns of a stream aligned without knowledge of later lines.
const KIND_WIDTH: usize = 20;

/// An event as one line of text.
pub(crate) fn line(event: &Event) -> String {
    const COLUMNS: &[Column] = &[
        Column::new(""),
        Column::new(""),
        Column::new(""),
        Column::new(""),
    ];
    let mut table = Table::new(COLUMNS, false);
    let job = event.job;
    let job = job.map_or_else(|| "-".to_owned(), |job| format!("job {job}"));
    let kind = event.fact.kind();
    table.push(vec![
        Cell::toned(event.time.to_string(), Tone::Faint),
        Cell::toned(format!("{kind:KIND_WIDTH$}"), tone(&event.fact)),
        format!("{job:9}").into(),
        (*event.text).into(),
    ]);
    table.render(false)
}

fn tone(fact: &Fact) -> Tone {
    match fact {
        Fact::JobResumed(_)
        | Fact::JobEligible(_)
        | Fact::AttemptRunning(_)
        | Fact::CheckpointCommitted(_)
        | Fact::HostRegistered(_)
        | Fact::Unblocked(_) => Tone::Good,
        Fact::JobCancelRequested(_)
        | Fact::JobSuspended(_)
        | Fact::AttemptStopping(_)
        | Fact::UnitRequeued(_)
        | Fact::UnitRetried(_)
        | Fact::MemberLeaving(_)
        | Fact::MemberVacated(_)
        | Fact::UnitClaimed(_)
        | Fact::UnitsMoved(_)
        | Fact::ClaimDropped(_)
        | Fact::LeadershipStarted(_)
        | Fact::Blocked(_) => Tone::Waiting,
        Fact::CheckpointDamaged(_) | Fact::TaskLost(_) => Tone::Bad,
        Fact::JobPruned(_) | Fact::TaskPrepared(_) => Tone::Faint,
        Fact::JobFinished(event) => phase_tone(event.phase.as_str()),
        Fact::TaskExited(event) if event.exit.starts_with("exit code 0") => Tone::Plain,
        Fact::TaskExited(_) => Tone::Bad,
        Fact::ReplicaChanged(event) if event.membership == Membership::Voter => Tone::Good,
        Fact::ReplicaChanged(_) => Tone::Waiting,
        Fact::HostHealthChanged(event) => match event.health {
            HostHealth::Up => Tone::Good,
            HostHealth::Lost => Tone::Bad,
            HostHealth::Suspect | HostHealth::Unknown => Tone::Waiting,
        },
        Fact::GpuHealthChanged(event) if event.signal.is_some() => Tone::Bad,
        Fact::GpuHealthChanged(_) => Tone::Good,
        Fact::HealthChanged(event) => match event.to.as_str() {
            "healthy" => Tone::Good,
            "suspect" | "probation" | "checking" | "repairing" => Tone::Waiting,
            _ => Tone::Bad,
        },
        Fact::HealthNoted(event) => match event.note.as_str() {
            "alert" | "doubt" | "incident" => Tone::Bad,
            "rules" => Tone::Plain,
            _ => Tone::Waiting,
        },
        Fact::HostCellsDoubted(event) if event.flaws.is_empty() => Tone::Good,
        Fact::HostCellsDoubted(_) => Tone::Waiting,
        Fact::AccessChanged(AccessChanged::WorkerJoined { .. }) => Tone::Good,
        Fact::AccessChanged(_)
        | Fact::JobSubmitted(_)
        | Fact::AttemptPlaced(_)
        | Fact::GangReleased(_)
        | Fact::AttemptEnded(_)
        | Fact::CheckpointsForgotten(_)
        | Fact::MemberSwapped(_)
        | Fact::AllocationBasisChanged(_)
        | Fact::TaskStarted(_)
        | Fact::BlockPlanned(_)
        | Fact::JobDefaultsSet(_)
        | Fact::QueueSet(_)
        | Fact::QueuesConfigured(_)
        | Fact::TopologySet(_)
        | Fact::LevelsChanged(_) => Tone::Plain,
    }
}
