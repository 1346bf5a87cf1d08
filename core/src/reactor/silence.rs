//! What follows from a host's silence: first nothing new is placed there, then it is lost, and when a
//! task's lease is over, the task is dead by contract.

use crate::command::{Command, HostHealth, TaskOutcome, TaskReport};
use crate::desired;
use crate::ids::LeadershipEpoch;
use crate::reactor::Contact;
use crate::state::{Host, State};
use crate::time::MonotonicMs;
use crate::timings::Timings;

/// Says if a host is suspect or lost by now, and whether beats arrive all the same; returns when it may become the next worse.
pub(super) fn health(
    timings: Timings,
    host: &Host,
    (contact, one_way): (&Contact, bool),
    (leader, now): (LeadershipEpoch, MonotonicMs),
    commands: &mut Vec<Command>,
) -> Option<MonotonicMs> {
    let silent_ms = now.since(contact.heard_at);
    let (health, next) = if silent_ms >= timings.lost_ms {
        (HostHealth::Lost, None)
    } else if silent_ms >= timings.suspect_ms {
        let lost_at = contact.heard_at.after(timings.lost_ms);
        (HostHealth::Suspect, Some(lost_at))
    } else {
        let suspect_at = contact.heard_at.after(timings.suspect_ms);
        (HostHealth::Up, Some(suspect_at))
    };
    // Silence only ever makes it worse; what makes it better is a beat.
    if health > host.health {
        commands.push(Command::SetHostHealth {
            leader,
            host: host.id,
            health,
            one_way,
        });
    }
    next
}

/// Fences every task of a silent host whose lease is over; returns when the next one's will be.
pub(super) fn fence(
    state: &State,
    host: &Host,
    contact: &Contact,
    (leader, now): (LeadershipEpoch, MonotonicMs),
    commands: &mut Vec<Command>,
) -> Option<MonotonicMs> {
    let mut next: Option<MonotonicMs> = None;
    for (job, unit, attempt) in desired::units_on(state, host.id) {
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
