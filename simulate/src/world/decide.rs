//! Planning, and the only place where its steps are applied.

use muster_model::command::Command;
use muster_model::ids::JobId;
use muster_planner::{Blocker, Budget, Plan, is_idle, plan};

use crate::measure::{HeadRequest, JobEnd};
use crate::world::SimulateError;
use crate::world::agenda::Happening;
use crate::world::run::World;

/// Planning rounds at one instant after which the planner is assumed to loop.
const ROUNDS_PER_INSTANT_MAX: u64 = 10_000;
/// Author of cancellations of jobs that do not fit.
const AUTHOR: &str = "simulator";

impl World<'_> {
    /// Plans until nothing is left to decide at this instant.
    pub(super) fn decide(&mut self) -> Result<(), SimulateError> {
        for _ in 0..ROUNDS_PER_INSTANT_MAX {
            if is_idle(&self.engine.state) {
                self.observer.look_at_line(None);
                return Ok(());
            }
            self.rounds += 1;
            let plan = plan(&self.engine.state, self.engine.now, Budget::default());
            if !self.carry_out(&plan)? {
                self.observer.look_at_line(self.head(&plan));
                return Ok(());
            }
        }
        Err(SimulateError::Restless {
            at: self.engine.now,
            rounds: ROUNDS_PER_INSTANT_MAX,
        })
    }

    /// Applies a plan; returns whether another round could decide more.
    fn carry_out(&mut self, plan: &Plan) -> Result<bool, SimulateError> {
        self.placements += plan.placements().count() as u64;
        let ended_before = self.observer.attempts_ended();
        for step in &plan.steps {
            self.engine.carry_out(step)?;
            self.follow()?;
        }
        for (job, blocker) in &plan.blocked {
            if let Blocker::NoSuchHost { .. } | Blocker::ExceedsCluster { .. } = blocker {
                self.withdraw(*job)?;
            }
        }
        if let Some(at) = plan.again_at {
            self.agenda.add(at, Happening::Plan);
        }
        Ok(plan.more || self.observer.attempts_ended() != ended_before)
    }

    /// The first job that waits for room.
    fn head(&self, plan: &Plan) -> Option<HeadRequest> {
        let mut blocked = plan.blocked.iter();
        let (job, _) = blocked.find(|(_, blocker)| blocker.waits_for_room())?;
        HeadRequest::of(&self.engine.state.job(*job)?.spec)
    }

    /// A job that the cluster could never hold is cancelled by its user.
    fn withdraw(&mut self, id: JobId) -> Result<(), SimulateError> {
        if let Some(position) = self.positions.remove(&id) {
            let job = &self.scenario.jobs[position];
            let (tasks, gpus) = (job.tasks, job.gpus_per_task);
            self.fits_nowhere
                .add(|| format!("{} ({tasks} x {gpus} GPUs)", job.name));
            self.end_job(position, JobEnd::FitsNowhere);
        }
        let request = self.engine.next_request();
        self.engine.carry_out(&Command::CancelJob {
            request,
            job: id,
            author: AUTHOR.to_owned(),
            reason: "the cluster could never hold it".to_owned(),
        })?;
        self.follow()
    }
}
