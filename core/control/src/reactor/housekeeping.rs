//! Actions due by stamped time: expiring blocks and attempts, pruning, ended back-offs.

use muster_engine::state::State;
use muster_model::command::Command;
use muster_model::ids::{LeadershipEpoch, UnitId};
use muster_model::time::{MonotonicMs, TimeMs};

use crate::reactor::{Reaction, SETTLE_MS, health, timers};

/// Maximum number of commands of [`timers::due`] per tick; the rest follow at the next.
const DUE_PER_TICK_MAX: usize = 1_024;
/// Milliseconds between two prune rounds while there is little to prune.
const PRUNE_PERIOD_MS: u64 = 1_000;
/// Milliseconds between two prune rounds while one round is not enough.
const PRUNE_AGAIN_MS: u64 = 50;
/// Maximum number of commands per prune round; each prunes up to `PRUNED_PER_COMMAND_MAX` records.
const PRUNES_PER_ROUND_MAX: usize = 64;

/// Milliseconds between two rounds over components that wait for a repair or a check.
const HEALTH_PERIOD_MS: u64 = 1_000;
/// Milliseconds between two searches for hosts that fail more often than others.
const LEMON_PERIOD_MS: u64 = 60_000;

/// The leader's record of its housekeeping.
#[derive(Clone, Debug, Default)]
pub(super) struct Housekeeping {
    /// Back-offs that ended up to this time have been reported.
    back_offs_reported: TimeMs,
    /// Number of commands of the last prune round; doubled while a round is not enough.
    prunes: usize,
    /// Earliest time of the next prune round.
    prune_at: MonotonicMs,
    /// Earliest time of the next look at repairs and checks.
    health_at: MonotonicMs,
    /// Earliest time of the next search for lemons.
    lemons_at: MonotonicMs,
    /// Newest stamped time seen.
    time: TimeMs,
    wake_at: Option<MonotonicMs>,
    has_ticked: bool,
}

/// State and time of one tick of the leader.
#[derive(Clone, Copy)]
pub(super) struct Tick<'a> {
    pub(super) state: &'a State,
    pub(super) leader: LeadershipEpoch,
    /// Its wall clock, for actions due by stamped time.
    pub(super) time: TimeMs,
    pub(super) now: MonotonicMs,
}

impl Housekeeping {
    /// Time at which the next action is due.
    pub(super) const fn wake_at(&self) -> Option<MonotonicMs> {
        self.wake_at
    }

    /// True until the end of the first tick.
    pub(super) const fn is_first_tick(&self) -> bool {
        !self.has_ticked
    }

    pub(super) fn tick(&mut self, tick: Tick<'_>, reaction: &mut Reaction) {
        let tick = Tick {
            // Stamps never go back, even where the wall clock does.
            time: tick.time.max(tick.state.time),
            ..tick
        };
        self.has_ticked = true;
        self.time = tick.time;
        let due = timers::due(tick.leader, tick.state, tick.time);
        reaction.commands.extend(due.take(DUE_PER_TICK_MAX));
        let next = timers::next(tick.state);
        let commands = &mut reaction.commands;
        let dates = [
            next.map(|at| tick.now.after(at.since(tick.time).max(SETTLE_MS))),
            self.prune(tick, commands),
            self.run_health_work(tick, commands),
            self.look_for_lemons(tick, commands),
        ];
        self.wake_at = dates.into_iter().flatten().min();
        reaction.plan_at = self.back_off_end(tick.state, tick.time);
    }

    /// Current stamped time, as far as it is known.
    pub(super) fn now(&self, state: &State) -> TimeMs {
        self.time.max(state.time)
    }

    /// Starts due repairs and checks and applies timed transitions; returns the time of the next look.
    fn run_health_work(
        &mut self,
        tick: Tick<'_>,
        commands: &mut Vec<Command>,
    ) -> Option<MonotonicMs> {
        let Tick {
            state,
            leader,
            time,
            now,
        } = tick;
        if !state.health.has_conditions() && state.health.incidents().next().is_none() {
            return None;
        }
        if now < self.health_at {
            return Some(self.health_at);
        }
        let (due, next) = health::due(leader, state, time);
        commands.extend(due);
        // Waits for the end of a task or for a guard rail have no known end.
        let pause_ms = next.map_or(HEALTH_PERIOD_MS, |at| at.since(time));
        self.health_at = now.after(pause_ms.clamp(SETTLE_MS, HEALTH_PERIOD_MS));
        Some(self.health_at)
    }

    /// Drains hosts that fail more often than others; returns the time of the next search.
    fn look_for_lemons(
        &mut self,
        tick: Tick<'_>,
        commands: &mut Vec<Command>,
    ) -> Option<MonotonicMs> {
        let Tick {
            state,
            leader,
            time,
            now,
        } = tick;
        if !state.health.has_records() {
            return None;
        }
        if now >= self.lemons_at {
            commands.extend(health::lemons(leader, state, time));
            self.lemons_at = now.after(LEMON_PERIOD_MS);
        }
        Some(self.lemons_at)
    }

    /// End of the first back-off that was not reported before.
    fn back_off_end(&mut self, state: &State, time: TimeMs) -> Option<TimeMs> {
        let after = self.back_offs_reported.after(1);
        self.back_offs_reported = time;
        let untold = (after, UnitId::MIN)..;
        let (end, _) = state.index.delayed.range(untold).next()?;
        Some(*end)
    }

    /// Prunes expired records, more at a time while there is a backlog; returns the time of the next round.
    fn prune(&mut self, tick: Tick<'_>, commands: &mut Vec<Command>) -> Option<MonotonicMs> {
        let Tick {
            state,
            leader,
            time,
            now,
        } = tick;
        let due = timers::prune_after(state)?;
        if now < self.prune_at {
            return Some(self.prune_at);
        }
        if due > time {
            self.prunes = 0;
            return Some(now.after(due.since(time)));
        }
        self.prunes = (self.prunes * 2).clamp(1, PRUNES_PER_ROUND_MAX);
        commands.extend((0..self.prunes).map(|_| Command::Prune { leader }));
        let pause_ms = if self.prunes > 1 {
            PRUNE_AGAIN_MS
        } else {
            PRUNE_PERIOD_MS
        };
        self.prune_at = now.after(pause_ms);
        Some(self.prune_at)
    }
}
