//! The engine behind a virtual clock: commands in, outcomes out. All drivers in virtual time share it: tests,
//! scenarios, the simulator, what-if and benchmarks.

use muster_control::reactor::timers;
use muster_engine::apply::{Applied, apply};
use muster_engine::audit::{Finding, audit};
use muster_engine::state::{Answer, State};
use muster_model::command::Command;
use muster_model::event::Event;
use muster_model::ids::{LeadershipEpoch, RequestId, RequestKey, Revision};
use muster_model::rejection::Rejection;
use muster_model::time::TimeMs;
use muster_planner::{Budget, Plan, plan};

/// Maximum number of findings in the text of an error.
const FINDINGS_SHOWN_MAX: usize = 5;
/// Prune commands at one instant; each removes up to `PRUNED_PER_COMMAND_MAX` objects.
const PRUNES_PER_INSTANT_MAX: usize = 16;

/// An applied command.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The state that contains its outcome.
    pub state: &'a State,
    /// The revision before it.
    pub before: Revision,
    /// The time stamped on it.
    pub time: TimeMs,
    /// The command.
    pub command: &'a Command,
    /// Its outcome.
    pub applied: &'a Applied,
}

impl<'a> Step<'a> {
    /// Returns the events that it caused, in order.
    pub fn events(&self) -> impl Iterator<Item = &'a Event> + use<'a> {
        let state: &'a State = self.state;
        let events = state.events.after(self.before);
        let events = events.expect("events of the newest revision are never compacted");
        events.flat_map(|(_, events)| events.iter())
    }
}

/// Record that a driver keeps of the commands that its engine applies.
pub trait Observe {
    /// Called after every command, even a refused one.
    fn observe(&mut self, step: Step<'_>);
}

/// The engine contradicts itself, or a driver proposed what it refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// A command was refused but should have had an effect.
    #[error("at {at}: {command} was refused")]
    Refused {
        /// Virtual time.
        at: TimeMs,
        /// The command, as text for users.
        command: String,
        /// Reason of the refusal.
        #[source]
        rejection: Box<Rejection>,
    },
    /// An audit found broken invariants.
    #[error("at {at}: the audit found {}", shown(.findings))]
    Unsound {
        /// Virtual time.
        at: TimeMs,
        /// The findings.
        findings: Vec<Finding>,
    },
    /// The planner did not reach a fixed point.
    #[error("at {at}: no fixed point after {rounds} planning rounds at one instant")]
    Restless {
        /// Virtual time.
        at: TimeMs,
        /// Number of rounds.
        rounds: u32,
    },
}

fn shown(findings: &[Finding]) -> String {
    let findings = findings.iter().take(FINDINGS_SHOWN_MAX);
    let texts: Vec<String> = findings.map(ToString::to_string).collect();
    texts.join("; ")
}

/// A state with its clock and a record of what happens.
#[derive(Clone, Debug)]
pub struct Engine<O> {
    /// The state.
    pub state: State,
    /// The time stamped on the next command.
    pub now: TimeMs,
    /// The record of applied commands.
    pub observer: O,
    commands: u64,
    audits: u64,
    requests: u64,
}

impl<O: Observe> Engine<O> {
    /// An engine that continues a state at `now`, or at the state's own time if that is later.
    pub fn at(state: State, now: TimeMs, observer: O) -> Self {
        Self {
            now: now.max(state.time),
            state,
            observer,
            commands: 0,
            audits: 0,
            requests: 0,
        }
    }

    /// Returns the current leadership.
    pub const fn leader(&self) -> LeadershipEpoch {
        self.state.leadership.epoch
    }

    /// Returns the number of commands applied.
    pub const fn commands(&self) -> u64 {
        self.commands
    }

    /// Returns the number of audits made.
    pub const fn audits(&self) -> u64 {
        self.audits
    }

    /// Returns a request key that was not used before.
    pub fn next_request(&mut self) -> RequestKey {
        self.requests += 1;
        RequestKey::of(RequestId(u128::from(self.requests)))
    }

    /// Advances the time, in milliseconds.
    pub fn wait(&mut self, span_ms: u64) {
        self.now = self.now.after(span_ms);
    }

    /// Applies a command now; a refusal is a result.
    pub fn apply(&mut self, command: &Command) -> Applied {
        let before = self.state.revision;
        let applied = apply(&mut self.state, self.now, command);
        self.commands += 1;
        self.observer.observe(Step {
            state: &self.state,
            before,
            time: self.now,
            command,
            applied: &applied,
        });
        applied
    }

    /// Applies a command that must not be refused.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if it is.
    pub fn carry_out(&mut self, command: &Command) -> Result<Answer, EngineError> {
        let result = self.apply(command).result;
        result.map_err(|rejection| self.refused(command, rejection))
    }

    /// Returns the error for a command that was refused but should have had an effect.
    pub fn refused(&self, command: &Command, rejection: Rejection) -> EngineError {
        EngineError::Refused {
            at: self.now,
            command: format!("{command:?}"),
            rejection: Box::new(rejection),
        }
    }

    /// Audits the whole state for broken invariants.
    ///
    /// # Errors
    /// [`EngineError::Unsound`] if there are any.
    pub fn audit(&mut self) -> Result<(), EngineError> {
        let findings = self.findings();
        if findings.is_empty() {
            return Ok(());
        }
        Err(EngineError::Unsound {
            at: self.now,
            findings,
        })
    }

    /// Audits the whole state and returns the broken invariants.
    pub fn findings(&mut self) -> Vec<Finding> {
        self.audits += 1;
        audit(&self.state)
    }

    /// Returns the commands that a leader proposes now because time has passed.
    pub fn due(&self) -> impl Iterator<Item = Command> {
        timers::due(self.leader(), &self.state, self.now)
    }

    /// Returns the next time, after now, at which time alone makes a command due. What is due already must
    /// have been carried out.
    pub fn next_due(&self) -> Option<TimeMs> {
        timers::next(&self.state).map(|at| at.max(self.now.after(1)))
    }

    /// Prunes objects whose retention has passed, as a leader does.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if the leader may not.
    pub fn prune(&mut self) -> Result<(), EngineError> {
        for _ in 0..PRUNES_PER_INSTANT_MAX {
            if timers::prune_after(&self.state).is_none_or(|at| at >= self.now) {
                break;
            }
            let leader = self.leader();
            self.carry_out(&Command::Prune { leader })?;
        }
        Ok(())
    }

    /// Plans one round with the default budget.
    pub fn plan(&self) -> Plan {
        plan(&self.state, self.now, Budget::default())
    }

    /// Applies the steps of a plan, which must all be accepted.
    ///
    /// # Errors
    /// [`EngineError::Refused`] at the first that is not.
    pub fn carry_out_plan(&mut self, plan: &Plan) -> Result<(), EngineError> {
        for step in &plan.steps {
            self.carry_out(step)?;
        }
        Ok(())
    }
}
