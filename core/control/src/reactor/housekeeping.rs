//! Actions due by stamped time: expiring blocks and attempts, pruning, ended back-offs.

use muster_engine::state::{Running, State};
use muster_model::command::Command;
use muster_model::ids::{LeadershipEpoch, UnitId};
use muster_model::limits;
use muster_model::time::{MonotonicMs, TimeMs};

use crate::reactor::{Reaction, SETTLE_MS, health};

/// Milliseconds between two prune rounds while there is little to prune.
const PRUNE_PERIOD_MS: u64 = 1_000;
/// Milliseconds between two prune rounds while one round is not enough.
const PRUNE_AGAIN_MS: u64 = 50;
/// Maximum number of commands per prune round; each prunes up to `PRUNED_PER_COMMAND_MAX` records.
const PRUNES_PER_ROUND_MAX: usize = 64;

/// Milliseconds between two looks at components that wait for a repair or a check.
const HEALTH_PERIOD_MS: u64 = 1_000;
/// Milliseconds between two searches for hosts that fail more often than others.
const LEMON_PERIOD_MS: u64 = 60_000;

/// The leader's record of its housekeeping.
#[derive(Clone, Debug, Default)]
pub(super) struct Housekeeping {
    /// Back-offs that ended up to this time have been reported.
    back_offs_told: TimeMs,
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
        let due_at = |at: TimeMs| tick.now.after(at.since(tick.time).max(SETTLE_MS));
        let commands = &mut reaction.commands;
        let dates = [
            expire_blocks(tick, commands).map(due_at),
            stop_overdue(tick, commands).map(due_at),
            self.prune(tick, commands),
            self.look_after_health(tick, commands),
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
    fn look_after_health(
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
        let after = self.back_offs_told.after(1);
        self.back_offs_told = time;
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
        let due = prune_due(state)?;
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

/// Sets planned blocks and removes expired ones; returns the time at which the next one is due.
fn expire_blocks(tick: Tick<'_>, commands: &mut Vec<Command>) -> Option<TimeMs> {
    let Tick {
        state,
        leader,
        time,
        ..
    } = tick;
    let (first, _, _) = *state.index.block_changes.get_min()?;
    if first <= time {
        commands.push(Command::ExpireBlocks { leader });
    }
    Some(first)
}

/// Maximum number of attempts stopped per tick; the rest follow at the next.
const STOPS_PER_TICK_MAX: usize = 1_024;

/// Stops attempts that reached their time limit for running or assembly; returns the earliest next deadline.
fn stop_overdue(tick: Tick<'_>, commands: &mut Vec<Command>) -> Option<TimeMs> {
    let Tick {
        state,
        leader,
        time,
        ..
    } = tick;
    let deadlines = state.index.deadlines.iter();
    let overdue = deadlines.take_while(|(at, _)| *at <= time);
    for (_, id) in overdue.take(STOPS_PER_TICK_MAX) {
        let due = Running::of(state, *id).and_then(|Running { job, attempt, .. }| {
            let (_, reason) = attempt.deadline(&job.spec)?;
            Some((attempt.epoch, reason))
        });
        if let Some((epoch, reason)) = due {
            commands.push(Command::StopAttempt {
                leader,
                job: id.job,
                unit: id.unit,
                epoch,
                reason,
            });
        }
    }
    state.index.deadlines.get_min().map(|(at, _)| *at)
}

/// Time at which the first record expires; `None` if there is none.
fn prune_due(state: &State) -> Option<TimeMs> {
    if state.index.finished.len() > limits::FINISHED_JOBS_KEPT_MAX {
        return Some(TimeMs::default());
    }
    let answer = state
        .requests
        .oldest()
        .map(|at| at.after(limits::REQUEST_KEPT_MS));
    let finished = state.index.finished.get_min();
    let job = finished.map(|(at, _)| at.after(limits::FINISHED_JOB_KEPT_MS));
    [answer, job].into_iter().flatten().min()
}
