//! Consequences of a host's silence: first no new placement, then the host is lost, and when a task's lease
//! is over, the task counts as dead by contract.

use muster_engine::desired;
use muster_engine::state::{Running, State};
use muster_model::command::{Command, HostCommand, HostHealth, TaskOutcome, TaskReport};
use muster_model::host::Host;
use muster_model::ids::LeadershipEpoch;
use muster_model::time::MonotonicMs;
use muster_model::timings::Timings;

use crate::reactor::HeartbeatRecord;

/// Measures of a host's silence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    /// Start of the silence, without the time without a leader: decides whether it is suspect.
    pub(super) since: MonotonicMs,
    /// Time of the last heartbeat: decides whether it is lost.
    pub(super) last_contact_at: MonotonicMs,
    /// Earliest time at which this leader could have received a heartbeat: it is not lost before.
    pub(super) not_before: MonotonicMs,
    /// Whether its heartbeats still arrive.
    pub(super) one_way: bool,
}

/// Returns whether a host is suspect or lost by now, and when it may get worse.
pub(super) fn health(
    timings: Timings,
    host: &Host,
    silence: Silence,
    leader: LeadershipEpoch,
    now: MonotonicMs,
    commands: &mut Vec<Command>,
) -> Option<MonotonicMs> {
    let lost_at = silence
        .last_contact_at
        .after(timings.lost_ms)
        .max(silence.not_before);
    let suspect_at = silence.since.after(timings.suspect_ms);
    let (health, next) = if now >= lost_at {
        (HostHealth::Lost, None)
    } else if now >= suspect_at {
        (HostHealth::Suspect, Some(lost_at))
    } else {
        (HostHealth::Up, Some(suspect_at.min(lost_at)))
    };
    // Silence only makes the health worse; only a heartbeat makes it better.
    if health > host.health {
        commands.push(Command::Host(HostCommand::SetHostHealth {
            leader,
            host: host.id,
            health,
            one_way: silence.one_way,
        }));
    }
    next
}

/// Fences every task of a silent host whose lease is over; returns the end of the next lease.
pub(super) fn fence(
    state: &State,
    host: &Host,
    contact: &HeartbeatRecord,
    leader: LeadershipEpoch,
    now: MonotonicMs,
    commands: &mut Vec<Command>,
) -> Option<MonotonicMs> {
    let mut next: Option<MonotonicMs> = None;
    for running in desired::units_on(state, host.id) {
        let Running {
            job,
            index: unit,
            attempt,
            ..
        } = running;
        let over_at = contact.leased_at.after(job.spec.partition_grace_ms);
        let held = attempt
            .tasks
            .iter()
            .filter(|task| task.host == host.id && !task.phase.is_terminal());
        for task in held {
            if over_at > now {
                next = Some(next.map_or(over_at, |next| next.min(over_at)));
                break;
            }
            commands.push(Command::ReportTask(TaskReport {
                leader,
                job: job.id,
                unit,
                epoch: attempt.epoch_of(task.task),
                task: task.task,
                outcome: TaskOutcome::Fenced,
            }));
        }
    }
    next
}
