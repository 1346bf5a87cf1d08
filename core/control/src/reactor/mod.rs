//! The leader's decisions other than placement: silent hosts, expired leases, reports that change the state,
//! expired records. Pure: heartbeats and time in, commands out.
//!
//! Its memory is not durable: a new leader starts its timers from the replicated heartbeat times, or from the
//! start of its term.
//!
//! The driver calls [`Reactor::step`] for every heartbeat and at `wake_at`, proposes the commands, and calls
//! again with the state that contains their outcome. Every command follows from a difference between that
//! state and the reports, so a lost command is proposed again, and one that took effect is not. While a
//! proposal is in flight the driver does not call: it would get the same commands again. Repeating them is
//! harmless, as `apply` rejects the second.

mod contact;
mod difference;
pub mod health;
mod housekeeping;
mod pace;
mod silence;
pub mod timers;
mod unreadable_checkpoints;

use std::collections::{BTreeMap, BTreeSet};

pub use contact::HeartbeatRecord;
pub use pace::{HEARTBEAT_DELAY_MS_MAX, Pace};

use muster_engine::state::State;
use muster_model::command::{Command, HostCommand, HostHealth};
use muster_model::heartbeat::Heartbeat;
use muster_model::ids::{HostId, LeadershipEpoch};
use muster_model::limits;
use muster_model::time::{MonotonicMs, TimeMs};
use muster_model::timings::Timings;

use crate::reactor::contact::HostRecord;
use crate::reactor::housekeeping::{Housekeeping, Tick};
use crate::reactor::silence::Silence;

/// Milliseconds until the outcome of proposed commands is checked.
const SETTLE_MS: u64 = 100;

/// Inputs of the reactor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A worker's heartbeat arrived on its registered stream.
    Heartbeat {
        /// The host.
        host: HostId,
        /// The heartbeat.
        heartbeat: Heartbeat,
    },
    /// Time passed.
    Tick {
        /// The leader's wall clock, for actions due by stamped time.
        time: TimeMs,
    },
}

/// The leader's record of its workers; created by every new leader.
#[derive(Clone, Debug)]
pub struct Reactor {
    epoch: LeadershipEpoch,
    timings: Timings,
    began_at: MonotonicMs,
    /// Every host known to this leader.
    watches: BTreeMap<HostId, HostRecord>,
    /// Due time of each watch: no later than the first conclusion from its host's silence.
    due: BTreeSet<(MonotonicMs, HostId)>,
    housekeeping: Housekeeping,
}

/// Output of the reactor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reaction {
    /// Commands to propose, in order, in one batch.
    pub commands: Vec<Command>,
    /// Hosts whose worker has an outdated desired state and must be sent the current one.
    pub outdated: Vec<HostId>,
    /// When to tick again, on the leader's monotonic clock, if nothing happens before.
    pub wake_at: Option<MonotonicMs>,
    /// Stamped time at which to plan again because a back-off ends; set by ticks only.
    pub plan_at: Option<TimeMs>,
}

impl Reactor {
    /// Creates the reactor of a leader whose term starts at `now`, from the replicated records of earlier
    /// heartbeats. Timers of hosts without a record start now.
    ///
    /// The time between the last heartbeat received by any leader and `now` makes no host suspect: there was
    /// no leader to receive heartbeats. Hosts are lost and leases end at the usual times, but no host before
    /// it had time for one heartbeat.
    ///
    /// Leases are safe if no earlier leader acknowledges a heartbeat later than `known` records (or later than
    /// `now`, for hosts that it does not name).
    #[must_use]
    pub fn new(
        epoch: LeadershipEpoch,
        timings: Timings,
        now: MonotonicMs,
        known: BTreeMap<HostId, HeartbeatRecord>,
    ) -> Self {
        let mut reactor = Self {
            epoch,
            timings,
            began_at: now,
            watches: BTreeMap::new(),
            due: BTreeSet::new(),
            housekeeping: Housekeeping::default(),
        };
        let last_contact = known.values().map(|contact| contact.last_contact_at).max();
        let leaderless_ms = last_contact.map_or(0, |contact_at| now.since(contact_at));
        for (host, contact) in known {
            reactor.watch(host, contact);
            if let Some(watch) = reactor.watches.get_mut(&host) {
                watch.silent_since = now.min(contact.last_contact_at.after(leaderless_ms));
            }
        }
        reactor
    }

    /// Epoch of this leadership.
    #[must_use]
    pub const fn epoch(&self) -> LeadershipEpoch {
        self.epoch
    }

    /// Heartbeat records of all hosts, for replication to the followers.
    pub fn contacts(&self) -> impl Iterator<Item = (HostId, &HeartbeatRecord)> {
        self.watches
            .iter()
            .map(|(host, watch)| (*host, &watch.contact))
    }

    /// Heartbeat record of one host.
    #[must_use]
    pub fn contact(&self, host: HostId) -> Option<&HeartbeatRecord> {
        self.watches.get(&host).map(|watch| &watch.contact)
    }

    /// Heartbeat period for one worker in milliseconds; at most `pace_ms`, the cluster-wide period, and
    /// shorter if a task on its host has a short lease.
    #[must_use]
    pub fn period_ms(&self, state: &State, host: HostId, pace_ms: u64) -> u64 {
        pace::within_leases(state, host, self.timings, pace_ms)
    }

    /// Records that the acknowledgement of a heartbeat set the period of the host's worker: its silence is
    /// judged by it from now on.
    pub fn record_period(&mut self, host: HostId, sequence: u64, period_ms: u64) {
        if let Some(watch) = self.watches.get_mut(&host) {
            watch.record_period(sequence, period_ms);
        }
    }

    /// Whether a host's last heartbeat is so recent that nothing follows from its silence.
    #[must_use]
    pub fn is_in_contact(&self, host: HostId, now: MonotonicMs) -> bool {
        self.watches.get(&host).is_some_and(|watch| {
            let timings = self.timings.stretched(watch.period_ms());
            now.since(watch.contact.last_contact_at) < timings.suspect_ms
        })
    }

    /// Releases gangs whose members are all prepared, the oldest first, a bounded number at a time. Must be
    /// called once for every state that is looked at.
    #[must_use]
    pub fn releases(&self, state: &State) -> Vec<Command> {
        let whole = state.index.prepared_gangs.iter().filter_map(|gang| {
            Some(Command::ReleaseGang {
                leader: self.epoch,
                job: gang.job,
                unit: gang.unit,
                epoch: state.attempt(*gang)?.epoch,
            })
        });
        whole.take(limits::RELEASES_PER_BATCH_MAX).collect()
    }

    /// Applies one input and returns the reaction.
    pub fn step(&mut self, state: &State, input: Input, now: MonotonicMs) -> Reaction {
        let mut reaction = match input {
            Input::Heartbeat { host, heartbeat } => self.heartbeat(state, host, heartbeat, now),
            Input::Tick { time } => self.tick(state, time, now),
        };
        let first_due = self.due.first().map(|(at, _)| *at);
        let settled = (!reaction.commands.is_empty()).then(|| now.after(SETTLE_MS));
        let housekeeping = self.housekeeping.wake_at();
        reaction.wake_at = [first_due, settled, housekeeping]
            .into_iter()
            .flatten()
            .min();
        reaction
    }

    fn heartbeat(
        &mut self,
        state: &State,
        host: HostId,
        heartbeat: Heartbeat,
        now: MonotonicMs,
    ) -> Reaction {
        let mut reaction = Reaction::default();
        // A worker that has accepted a later leader shows that this leadership is over: its reports are for
        // that leader.
        let Some(known) = state.host(host).filter(|_| heartbeat.leader <= self.epoch) else {
            return reaction;
        };
        if !self.watches.contains_key(&host) {
            self.watch(host, HeartbeatRecord::at(now));
        }
        let Some(watch) = self.watches.get_mut(&host) else {
            return reaction;
        };
        if heartbeat.desired_revision < known.desired_revision || heartbeat.leader < self.epoch {
            reaction.outdated.push(host);
        }
        let is_answered = watch.record_heartbeat(heartbeat, now);
        if is_answered && known.health != HostHealth::Up {
            reaction
                .commands
                .push(Command::Host(HostCommand::SetHostHealth {
                    leader: self.epoch,
                    host,
                    health: HostHealth::Up,
                    one_way: false,
                }));
        }
        if let Some(mut report) = watch.unsettled.take() {
            let differences = difference::commands(
                state,
                self.epoch,
                self.housekeeping.now(state),
                known,
                &report,
            );
            if !differences.is_empty() && report.try_again() {
                watch.unsettled = Some(report);
                reaction.commands.extend(differences);
            }
        }
        self.due_by(host, now.after(self.timings.suspect_ms));
        reaction
    }

    fn tick(&mut self, state: &State, time: TimeMs, now: MonotonicMs) -> Reaction {
        let mut reaction = Reaction::default();
        self.watch_newcomers(state, now);
        while let Some((at, host)) = self.due.first().copied()
            && at <= now
        {
            self.due.remove(&(at, host));
            self.look_at(state, host, now, &mut reaction);
        }
        let tick = Tick {
            state,
            leader: self.epoch,
            time,
            now,
        };
        self.housekeeping.tick(tick, &mut reaction);
        reaction
    }

    /// Checks a host that may have been silent for too long, and sets the time of the next check.
    fn look_at(&mut self, state: &State, host: HostId, now: MonotonicMs, reaction: &mut Reaction) {
        let Some(watch) = self.watches.get_mut(&host) else {
            return;
        };
        watch.due = None;
        let Some(known) = state.host(host) else {
            self.watches.remove(&host);
            return;
        };
        // A task may have arrived since the worker's period was set; its lease must not wait for that.
        let period_ms = pace::within_leases(state, host, self.timings, watch.period_ms());
        let timings = self.timings.stretched(period_ms);
        let mut conclusions = Vec::new();
        let mut next = silence::health(
            timings,
            known,
            Silence {
                since: watch.silent_since,
                last_contact_at: watch.contact.last_contact_at,
                not_before: self.began_at.after(self.timings.heartbeat_ms),
                one_way: watch.is_one_way(timings, now),
            },
            self.epoch,
            now,
            &mut conclusions,
        );
        if now.since(watch.contact.last_contact_at) >= timings.suspect_ms {
            let fence = silence::fence(
                state,
                known,
                &watch.contact,
                self.epoch,
                now,
                &mut conclusions,
            );
            next = [next, fence].into_iter().flatten().min();
        }
        if !conclusions.is_empty() {
            // Check again whether they took effect.
            let again = now.after(self.timings.heartbeat_ms);
            next = Some(next.map_or(again, |next| next.min(again)));
        }
        reaction.commands.extend(conclusions);
        if let Some(next) = next {
            self.due_by(host, next);
        }
    }

    /// Starts watching hosts that registered and sent no heartbeat since.
    fn watch_newcomers(&mut self, state: &State, now: MonotonicMs) {
        if self.watches.len() >= state.hosts.len() {
            return;
        }
        let newcomers: Vec<HostId> = state
            .hosts
            .keys()
            .filter(|host| !self.watches.contains_key(host))
            .copied()
            .collect();
        let first_look = self.housekeeping.is_first_tick();
        for host in newcomers {
            let since = if first_look { self.began_at } else { now };
            self.watch(host, HeartbeatRecord::at(since));
        }
    }

    fn watch(&mut self, host: HostId, contact: HeartbeatRecord) {
        let first_due = contact.last_contact_at.after(self.timings.suspect_ms);
        self.watches.insert(host, HostRecord::new(contact));
        self.due_by(host, first_due);
    }

    /// Schedules a check of a host at this time at the latest.
    fn due_by(&mut self, host: HostId, at: MonotonicMs) {
        let Some(watch) = self.watches.get_mut(&host) else {
            return;
        };
        if watch.due.is_some_and(|due| due <= at) {
            return;
        }
        if let Some(later) = watch.due.replace(at) {
            self.due.remove(&(later, host));
        }
        self.due.insert((at, host));
    }
}
