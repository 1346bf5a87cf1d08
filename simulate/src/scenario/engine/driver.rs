//! Execution of statements on a cluster: each through `apply`, then everything that follows from it up to a
//! fixed point.

use std::sync::Arc;

use muster_engine::state::{Answer, State};
use muster_harness::{BEGIN, Engine};
use muster_model::command::Command;
use muster_model::ids::JobId;
use muster_model::rejection::Rejection;
use muster_model::time::TimeMs;
use muster_planner::Plan;

use crate::scenario::engine::Failure;
use crate::scenario::engine::log::Log;
use crate::scenario::engine::workers::{self, Lengths};
use crate::scenario::script::Submission;

/// Maximum number of rounds of planning and reports in one step.
const ROUNDS_MAX: u32 = 2_000;

/// A cluster with its workers and its planner.
#[derive(Clone, Debug)]
pub(crate) struct Driver {
    pub(crate) engine: Engine<Log>,
    /// Number of leaders so far, the last of which is the id of the current one.
    pub(super) replicas: u64,
    /// Number of commands after which the leader is killed and replaced.
    pub(super) cut_after: Option<usize>,
    /// Whether workers start and stop tasks on their own.
    pub(crate) workers_obey: bool,
    /// Whether the planner runs after each step.
    pub(crate) planner_auto: bool,
    /// Refusals of users' commands in the current step.
    pub(crate) refusals: Vec<String>,
    pub(super) hosts: u32,
    pub(super) topology: muster_model::topology::Topology,
    /// Names of the levels that the script uses: above hosts, inside hosts.
    pub(super) levels: (Vec<String>, Vec<String>),
    lengths: Lengths,
    /// Time at which the planner asks to run again.
    again_at: Option<TimeMs>,
}

impl Driver {
    /// An empty cluster with a leader. With `cut_after` the leader is killed after that number of commands.
    pub(crate) fn new(cut_after: Option<usize>) -> Result<Self, Failure> {
        let mut driver = Self {
            engine: Engine::at(State::default(), BEGIN, Log::default()),
            replicas: 0,
            cut_after,
            workers_obey: true,
            planner_auto: true,
            refusals: Vec::new(),
            hosts: 0,
            topology: muster_model::topology::Topology::default(),
            levels: (Vec::new(), Vec::new()),
            lengths: Lengths::new(),
            again_at: None,
        };
        driver.new_leader()?;
        Ok(driver)
    }

    /// Applies a user's command and records a refusal.
    pub(super) fn ask(&mut self, command: Command) -> Result<Option<Answer>, Failure> {
        match self.apply(&command)? {
            Ok(answer) => Ok(Some(answer)),
            Err(rejection) => {
                self.refuse(&rejection);
                Ok(None)
            }
        }
    }

    fn refuse(&mut self, rejection: &Rejection) {
        self.refusals.push(rejection.to_string());
    }

    /// Applies reports one by one, each recomputed by `remaining` because the previous one may have changed
    /// the state.
    pub(super) fn report(
        &mut self,
        remaining: impl Fn(&State) -> Vec<Command>,
    ) -> Result<bool, Failure> {
        let mut reported = false;
        while let Some(report) = remaining(&self.engine.state).into_iter().next() {
            let known = self.engine.leader();
            let refused = self.ask(report)?.is_none();
            // A report to a leader that crashed meanwhile is repeated to the next one.
            if refused && known == self.engine.leader() {
                break;
            }
            reported = true;
        }
        Ok(reported)
    }

    pub(super) fn submit(&mut self, submission: &Submission) -> Result<(), Failure> {
        let mut spec = submission.spec.as_ref().clone();
        for (group, bound) in spec.groups.iter_mut().zip(&submission.bound) {
            for name in bound {
                group.layout.gpus.push(self.gpu(name)?);
            }
        }
        let request = self.engine.next_request();
        let spec = Arc::new(spec);
        let answer = self.ask(Command::SubmitJob { request, spec })?;
        if let Some(Answer::Job(job)) = answer {
            self.lengths
                .extend(submission.lasts_ms.map(|lasts_ms| (job, lasts_ms)));
        }
        Ok(())
    }

    /// Advances time from one due event to the next.
    pub(super) fn advance(&mut self, span_ms: u64) -> Result<(), Failure> {
        let end = self.engine.now.after(span_ms);
        while let Some(at) = self.next_instant().filter(|at| *at < end) {
            self.engine.now = at;
            self.settle()?;
        }
        self.engine.now = end;
        self.settle()
    }

    fn next_instant(&self) -> Option<TimeMs> {
        let (state, now) = (&self.engine.state, self.engine.now);
        let work = workers::next_end(state, &self.lengths).filter(|_| self.workers_obey);
        let work = work.map(|at| at.max(now.after(1)));
        let again = self.again_at.filter(|at| *at > now);
        let instants = [work, again, self.engine.next_due()];
        instants.into_iter().flatten().min()
    }

    /// Continues until nothing is left to do: timers, workers' reports, and the planner if it runs
    /// automatically.
    pub(crate) fn settle(&mut self) -> Result<(), Failure> {
        for _ in 0..ROUNDS_MAX {
            // All pending reports are delivered before anything is planned, also by a leader that started
            // in between.
            if self.timers()? || (self.workers_obey && self.work()?) {
                continue;
            }
            if !(self.planner_auto && self.plan_round()?) {
                return Ok(());
            }
        }
        let last = self.log().last();
        Err(Failure::NoFixedPoint {
            rounds: ROUNDS_MAX,
            last: last.map_or_else(String::new, |entry| format!("{:?}", entry.command)),
        })
    }

    fn timers(&mut self) -> Result<bool, Failure> {
        let commands = self.engine.due().collect();
        self.propose(commands)
    }

    fn work(&mut self) -> Result<bool, Failure> {
        let reports = workers::reports(&self.engine.state, &self.lengths, self.engine.now);
        self.propose(reports)
    }

    /// Applies a leader's proposals in one batch; the rest is lost if that leader crashes. True if anything
    /// took effect.
    fn propose(&mut self, commands: Vec<Command>) -> Result<bool, Failure> {
        let leader = self.engine.leader();
        let mut effective = false;
        for command in commands {
            if self.engine.leader() != leader {
                return Ok(true);
            }
            effective |= self.apply(&command)?.is_ok();
        }
        Ok(effective)
    }

    /// One round of planning; true if it proposed anything.
    pub(crate) fn plan_round(&mut self) -> Result<bool, Failure> {
        let Plan {
            steps, again_at, ..
        } = self.engine.plan();
        self.again_at = again_at;
        let leader = self.engine.leader();
        let mut proposed = false;
        for command in &steps {
            if self.engine.leader() != leader {
                break;
            }
            if let Err(rejection) = self.apply(command)? {
                return Err(Failure::PlanRefused {
                    command: format!("{command:?}"),
                    reason: rejection.to_string(),
                });
            }
            proposed = true;
        }
        Ok(proposed)
    }

    /// The newest job with the given name.
    pub(crate) fn job(&self, name: &str) -> Result<JobId, Failure> {
        let mut jobs = self.engine.state.jobs.values().rev();
        jobs.find(|job| job.spec.name == name)
            .map(|job| job.id)
            .ok_or_else(|| Failure::Unknown(format!("there is no job `{name}`")))
    }
}
