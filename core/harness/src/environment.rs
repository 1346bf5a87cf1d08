//! The leader's decisions at one instant, in a simulated environment.

use muster_planner::Plan;

use crate::engine::{Engine, EngineError, Observe};

/// Planning rounds at one instant after which the planner is assumed to loop.
const ROUNDS_PER_INSTANT_MAX: u32 = 10_000;

/// Simulated workers and users around an engine.
pub trait Environment {
    /// The engine's record of applied commands.
    type Observer: Observe;
    /// Error of the simulation.
    type Error: From<EngineError>;

    /// Whether workers react to every step of a plan before the next one is applied, or only to the plan as a
    /// whole.
    const REACTS_TO_EACH_STEP: bool;

    /// The engine.
    fn engine(&mut self) -> &mut Engine<Self::Observer>;

    /// Whether a planning round has nothing to decide.
    fn is_idle(&self) -> bool;

    /// Lets workers and users react to all commands since the last call, until they have nothing more to
    /// report; returns whether an attempt released resources.
    ///
    /// # Errors
    /// If the engine refuses a reaction.
    fn react(&mut self) -> Result<bool, Self::Error>;

    /// Called when the steps of a plan have been applied.
    ///
    /// # Errors
    /// If the engine refuses what follows from it.
    fn planned(&mut self, plan: &Plan) -> Result<(), Self::Error>;

    /// Carries out what is due because time has passed.
    ///
    /// # Errors
    /// If the engine refuses a command.
    fn run_timers(&mut self) -> Result<(), Self::Error> {
        loop {
            let due = self.engine().due().next();
            let Some(command) = due else {
                return Ok(());
            };
            self.engine().carry_out(&command)?;
            self.react()?;
        }
    }

    /// Plans until nothing is left to decide at this instant; returns the last plan, or `None` if there was
    /// nothing to decide.
    ///
    /// # Errors
    /// [`EngineError::Restless`] if there is no end to it, and if the engine refuses a command.
    fn plan_until_settled(&mut self) -> Result<Option<Plan>, Self::Error> {
        for _ in 0..ROUNDS_PER_INSTANT_MAX {
            if self.is_idle() {
                return Ok(None);
            }
            let plan = self.engine().plan();
            let mut has_released = false;
            for step in &plan.steps {
                self.engine().carry_out(step)?;
                if Self::REACTS_TO_EACH_STEP {
                    has_released |= self.react()?;
                }
            }
            self.planned(&plan)?;
            has_released |= self.react()?;
            if !plan.more && !has_released {
                return Ok(Some(plan));
            }
        }
        let at = self.engine().now;
        Err(EngineError::Restless {
            at,
            rounds: ROUNDS_PER_INSTANT_MAX,
        }
        .into())
    }
}
