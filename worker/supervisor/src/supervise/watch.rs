//! Watch over a running task: its lease, its signals, and its requests, until no process of it is alive.

use std::os::fd::AsFd;

use muster_model::command::Exit;
use muster_model::time::MonotonicMs;

use crate::lease::Verdict;
use crate::lease::guard::GuardedState;
use crate::limits::LEASE_TICK;
use crate::process::process_tree::ProcessTree;
use crate::process::rounds::Rounds;
use crate::supervise::killing::Killing;
use crate::supervise::{SuperviseError, Supervisor, Watched, during, milliseconds};
use crate::task::stopping::Stopping;

/// Maximum descriptors polled besides the connections: the task's end, the alarm, the checkpoint thread, the
/// flag file, commands' ends and two pipes.
const OTHERS_MAX: usize = 7;
/// Reason given to a task that is asked to stop because its lease is about to end.
const LEASE_ENDS: &str = "lease";

impl Supervisor<'_> {
    /// Watches the task until no process of it is alive. Returns its exit, and its resources like
    /// [`Self::conclude`].
    ///
    /// No process of the task may live longer than its lease, and no exit may be reported before all of them
    /// are dead. That is why each turn has this order:
    ///
    /// 1. Reap. Nothing else ends the loop, so the receiver of the exit may reuse the task's resources.
    /// 2. Read the clock, once a turn, and update the guard. If this process freezes in any later step, the
    ///    guard kills it and the task soon after the last deadline that it received.
    /// 3. Judge the lease, before any message is read: an extension that waited in a socket while this process
    ///    was frozen does not revive an expired lease. A stop request caused by the approaching end is made
    ///    first, because its grace counts for the judgement.
    /// 4. Decide about the kill. It is never taken back, whatever is received later.
    /// 5. Signal the processes, again in every turn: a kill misses processes that are being forked.
    /// 6. Watch checkpoints and report progress: not needed for safety, so after the signals.
    /// 7. Set the alarm and notify the guard when the lease must be judged again, before sleeping.
    /// 8. Sleep, never longer than [`LEASE_TICK`]: the timeout does not count time in which the machine is
    ///    suspended, and the alarm is not required.
    /// 9. Handle what arrived, a bounded number of bytes, so that the next turn comes in time.
    pub(super) fn watch(
        &mut self,
        mut task: Watched,
    ) -> Result<(Exit, Option<ProcessTree>), SuperviseError> {
        let mut killing = Killing::default();
        let mut rounds = Rounds::default();
        while !self.execs.reap(&mut task.tree) {
            let now = self.clock.now();
            self.pulse.into_iter().for_each(GuardedState::clock_checked);
            let has_ended = task.tree.status().is_some();
            let verdict = self.judge(now, has_ended);
            if self.must_kill(verdict, has_ended) && killing.begin(now) {
                rounds = Rounds::default();
            }
            self.signal(&task, &killing, now);
            if now >= task.keeper_due {
                self.start_keeper(&mut task);
            }
            self.send_progress(now);
            let pause = match has_ended || killing.has_begun() {
                true => rounds.pause(),
                false => LEASE_TICK,
            };
            let timeout_ms = match verdict {
                Verdict::LivesUntil(then) if !killing.has_begun() => {
                    self.wake_at(then);
                    let next = self.next_check(then, &task);
                    next.since(now).clamp(1, milliseconds(pause))
                }
                _ => milliseconds(pause),
            };
            self.wait(&task, timeout_ms)?;
            self.receive(&mut task);
            self.move_gang(now);
            self.publish_checkpoints(&task);
            if let Err(error) = task.output.start_if_printed() {
                self.broken = Some(format!("watching the task failed: {error}"));
            }
        }
        Ok(self.conclude(task))
    }

    /// The state of the lease. Asks the task to stop if the lease is about to end.
    fn judge(&mut self, now: MonotonicMs, has_ended: bool) -> Verdict {
        if !has_ended && let Some(grace_ms) = self.lease.grace_left(now) {
            self.is_asked_by_lease = true;
            self.ask_to_stop(LEASE_ENDS.to_owned(), grace_ms);
        }
        let verdict = self.lease.verdict(now);
        self.expired |= verdict == Verdict::LeaseOver && !has_ended;
        verdict
    }

    /// Whether the task, or what is left of it after its main process, must be killed.
    fn must_kill(&self, verdict: Verdict, has_ended: bool) -> bool {
        // Processes that outlive the main process are not the task; while it stops, they may be its clean-up.
        let is_orphaned = has_ended && !self.lease.is_stopping();
        is_orphaned || !matches!(verdict, Verdict::LivesUntil(_)) || self.broken.is_some()
    }

    /// Sends the signals that are due: kill, pause or resume, or those of a stop request.
    fn signal(&mut self, task: &Watched, killing: &Killing, now: MonotonicMs) {
        if task.tree.status().is_some() {
            self.execs.kill();
        }
        self.pause_state.apply(&task.tree, &self.execs);
        if killing.has_begun() {
            self.kill(killing, task, now);
        } else if let Some(stopping) = &mut self.stopping {
            stopping.act(now, &task.tree);
        }
    }

    /// Sleeps until something arrives, the alarm rings, or the timeout is over.
    fn wait(&self, task: &Watched, timeout_ms: u64) -> Result<(), SuperviseError> {
        let mut others: Vec<&dyn AsFd> = Vec::with_capacity(OTHERS_MAX);
        // The main process's end stays readable forever: once handled, it must not wake this thread again.
        if task.tree.status().is_none() {
            others.push(&task.tree);
        }
        others.extend(task.keeper.iter().map(|keeper| keeper as &dyn AsFd));
        let flag = self.stopping.as_ref().and_then(Stopping::flag);
        others.extend(flag.map(|flag| flag as &dyn AsFd));
        others.extend(self.alarm.iter().map(|alarm| alarm as &dyn AsFd));
        others.extend(self.execs.ended().map(|ended| ended as &dyn AsFd));
        others.extend(task.output.quiet().map(|pipe| pipe as &dyn AsFd));
        self.connections
            .wait(&others, timeout_ms)
            .map_err(during("polling"))?;
        if let Some(alarm) = &self.alarm {
            alarm.acknowledge();
        }
        Ok(())
    }
}
