//! Checker for P1: running tasks continue while replicas are killed, paused, added and removed.
//!
//! Applied only where the result is certain. A paused machine may legitimately cost a host its lease, which
//! is excluded if users are answered all the time. Losses from the previous fault may be reported late:
//! only attempts placed after recovery from it count, except those asked to stop.

use std::collections::BTreeSet;

use muster_model::command::HostHealth;
use muster_model::event::EventKind;
use muster_model::ids::{AttemptEpoch, Revision};

use crate::run::checkers::{Evidence, Invariant, Violation};
use crate::run::history::{Call, Operation};
use crate::run::load::WatchedEvents;
use crate::run::nemesis::Episode;

/// Gap between acknowledged writes, in microseconds, beyond which a fault is not checked. Leases of the
/// load are 6.5 s, and a worker without a leader asks tasks to stop after 3.5 s of them: 2 s are left for
/// it to find the next leader.
const GAP_US_MAX: u64 = 1_500_000;

/// A fault that must not displace any task.
struct Window<'a> {
    episode: &'a Episode,
    /// Newest revision known to any user before the fault.
    before: Revision,
    /// A revision after recovery from the previous fault.
    settled: Revision,
}

/// A lost host or task.
struct LostTask {
    revision: Revision,
    at_us: u64,
    /// The task's attempt.
    epoch: Option<AttemptEpoch>,
    text: String,
}

impl Window<'_> {
    fn holds(&self, loss: &LostTask) -> bool {
        let is_settled = |epoch: AttemptEpoch| epoch.get() > self.settled.get();
        loss.revision > self.before
            && loss.at_us <= self.episode.ended_us()
            && loss.epoch.is_none_or(is_settled)
    }
}

/// Number of faults checked.
pub(super) fn judged(evidence: &Evidence) -> usize {
    windows(&evidence.episodes, &evidence.operations).len()
}

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    of_windows(
        &windows(&evidence.episodes, &evidence.operations),
        &losses(&evidence.earliest()),
    )
}

fn of_windows(windows: &[Window<'_>], losses: &[LostTask]) -> Vec<Violation> {
    let mut found = Vec::new();
    for window in windows {
        let (what, target) = (window.episode.fault.name(), &window.episode.target);
        let within = losses.iter().filter(|loss| window.holds(loss));
        found.extend(within.map(|loss| Violation {
            invariant: Invariant::TaskContinuity,
            text: format!("{what} ({target}): {}", loss.text),
        }));
    }
    found
}

/// Faults that hit only replicas and during which users were answered all the time.
fn windows<'a>(episodes: &'a [Episode], operations: &[Operation]) -> Vec<Window<'a>> {
    let mut windows = Vec::new();
    let mut settled = Some(Revision(0));
    for episode in episodes {
        if let Some(settled) = settled
            && episode.fault.spares_tasks()
            && episode.has_load()
            && gap_us(episode, operations) <= GAP_US_MAX
        {
            windows.push(Window {
                episode,
                before: known_before(episode.began_us, operations),
                settled,
            });
        }
        settled = read_after(episode.ended_us(), operations);
    }
    windows
}

/// Longest gap between acknowledged writes, in microseconds. Operations are in the order of completion.
fn gap_us(episode: &Episode, operations: &[Operation]) -> u64 {
    let (mut last_us, ended_us) = (episode.began_us, episode.ended_us());
    let mut longest_us = 0;
    let span = episode.began_us..ended_us;
    for write in operations.iter().filter(|it| it.is_write()) {
        if span.contains(&write.completed_us) {
            longest_us = longest_us.max(write.completed_us - last_us);
            last_us = write.completed_us;
        }
    }
    longest_us.max(ended_us - last_us)
}

/// Newest revision in an answer to a user before `at_us`.
fn known_before(at_us: u64, operations: &[Operation]) -> Revision {
    let earlier = operations.iter().filter(|it| it.completed_us <= at_us);
    let revisions = earlier.filter_map(|it| Some(it.answer()?.revision));
    revisions.max().unwrap_or_default()
}

/// A revision created after that time; `None` without a later read.
fn read_after(at_us: u64, operations: &[Operation]) -> Option<Revision> {
    let later = operations
        .iter()
        .filter(|it| it.invoked_us >= at_us && matches!(it.call, Call::Read(_)));
    later.filter_map(|it| Some(it.answer()?.revision)).min()
}

/// Lost hosts and tasks, except tasks that had been asked to stop.
fn losses(watched: &WatchedEvents) -> Vec<LostTask> {
    let mut stopping = BTreeSet::new();
    let mut losses = Vec::new();
    for delivery in &watched.deliveries {
        let (revision, at_us) = (delivery.revision, delivery.at_us);
        let mut lost = |epoch, text| {
            losses.push(LostTask {
                revision,
                at_us,
                epoch,
                text,
            });
        };
        // Event kinds unknown to this build are not checked here.
        let kinds = delivery.events.iter().cloned().map(EventKind::try_from);
        for kind in kinds.flatten() {
            match kind {
                EventKind::AttemptStopping { epoch, .. }
                | EventKind::MemberLeaving { epoch, .. } => {
                    stopping.insert(epoch);
                }
                EventKind::HostHealthChanged {
                    name,
                    health: HostHealth::Lost,
                    ..
                } => lost(None, format!("{name} was lost")),
                EventKind::TaskLost {
                    job,
                    epoch,
                    task,
                    detail,
                    ..
                } if !stopping.contains(&epoch) => {
                    let text = format!("task {task} of job {job} was lost: {detail}");
                    lost(Some(epoch), text);
                }
                EventKind::TaskExited {
                    job,
                    epoch,
                    task,
                    exit,
                    ..
                } if exit.lease_expired && !stopping.contains(&epoch) => {
                    let text = format!("the lease of task {task} of job {job} ran out");
                    lost(Some(epoch), text);
                }
                _ => {}
            }
        }
    }
    losses
}

#[cfg(test)]
mod tests {
    use muster_model::command::{StopCause, StopReason};
    use muster_model::ids::{HostId, JobId, TaskIndex, UnitIndex};
    use muster_proto::v1;

    use super::*;
    use crate::cluster::Fault;
    use crate::run::history::{Answer, Outcome};
    use crate::run::load::Delivery;

    fn operation(call: Call, completed_us: u64, revision: u64) -> Operation {
        Operation {
            user: 0,
            call,
            invoked_us: completed_us - 1,
            completed_us,
            via: None,
            outcome: Outcome::Done(Answer {
                job: JobId(1),
                revision: Revision(revision),
                phase: None,
            }),
        }
    }

    fn write(completed_us: u64, revision: u64) -> Operation {
        operation(Call::Cancel(JobId(1)), completed_us, revision)
    }

    fn watched(kinds: &[(u64, u64, EventKind)]) -> WatchedEvents {
        let deliveries = kinds.iter().map(|(revision, at_us, kind)| Delivery {
            revision: Revision(*revision),
            events: vec![v1::Event::from(kind)],
            at_us: *at_us,
        });
        WatchedEvents {
            deliveries: deliveries.collect(),
            ..WatchedEvents::default()
        }
    }

    fn lost(epoch: u64) -> EventKind {
        EventKind::TaskLost {
            job: JobId(1),
            unit: UnitIndex(0),
            epoch: AttemptEpoch(epoch),
            task: TaskIndex(0),
            host: HostId(1),
            detail: "its worker does not hold it".to_owned(),
        }
    }

    fn found(episodes: &[Episode], kinds: &[(u64, u64, EventKind)]) -> usize {
        let read = |at_us, revision| operation(Call::Read(JobId(1)), at_us, revision);
        let operations = [write(900, 10), write(2_000, 12), read(6_500, 20)];
        let windows = windows(episodes, &operations);
        of_windows(&windows, &losses(&watched(kinds))).len()
    }

    #[test]
    fn who_loses_its_place_while_a_replica_is_killed_is_noticed() {
        let killed = [Episode::of(Fault::LeaderKilled)];
        let silent = EventKind::HostHealthChanged {
            host: HostId(1),
            name: "node01".to_owned(),
            health: HostHealth::Lost,
            one_way: false,
        };
        let both = [(14, 3_000, silent), (15, 3_100, lost(8))];
        assert_eq!(found(&killed, &both), 2);
        assert_eq!(found(&[Episode::of(Fault::HostKilled)], &both), 0);
        // Before the fault, though received late; and after recovery.
        assert_eq!(found(&killed, &[(9, 3_000, lost(8))]), 0);
        assert_eq!(found(&killed, &[(15, 7_000, lost(8))]), 0);
        // A task that was asked to stop may end in any way.
        let stopping = EventKind::AttemptStopping {
            job: JobId(1),
            unit: UnitIndex(0),
            epoch: AttemptEpoch(8),
            cause: StopCause::new(StopReason::Cancelled, String::new()),
        };
        let stopped = [(14, 3_000, stopping), (15, 3_100, lost(8))];
        assert_eq!(found(&killed, &stopped), 0);
    }

    #[test]
    fn attempts_displaced_by_the_previous_fault_do_not_count() {
        let next = Episode {
            began_us: 8_000,
            healed_us: 9_000,
            recovered_us: Some(9_500),
            ..Episode::of(Fault::LeaderKilled)
        };
        let episodes = [Episode::of(Fault::HostKilled), next];
        assert_eq!(found(&episodes, &[(30, 9_000, lost(19))]), 0);
        assert_eq!(found(&episodes, &[(30, 9_000, lost(21))]), 1);
    }

    #[test]
    fn a_fault_during_which_the_machine_may_have_stood_still_is_not_judged() {
        let mut episode = Episode::of(Fault::LeaderKilled);
        episode.recovered_us = Some(3 * GAP_US_MAX);
        let often = [1, 2, 3, 4, 5].map(|part| write(part * GAP_US_MAX / 2 + 10, 5));
        let episodes = [episode];
        assert_eq!(windows(&episodes, &often).len(), 1);
        assert_eq!(windows(&episodes, &often[..3]).len(), 0);
    }
}
