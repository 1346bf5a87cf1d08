//! Planning, and the only place where its steps are applied.

use muster_harness::Environment;
use muster_model::command::Command;
use muster_model::ids::JobId;
use muster_planner::{Blocker, Plan, is_idle};

use crate::measure::{HeadRequest, JobEnd};
use crate::world::SimulateError;
use crate::world::engine::{Engine, PendingEvents};
use crate::world::happening::Event;
use crate::world::run::World;

/// Author of cancellations of jobs that do not fit.
const AUTHOR: &str = "simulator";

impl Environment for World<'_> {
    type Observer = PendingEvents;
    type Error = SimulateError;

    const REACTS_TO_EACH_STEP: bool = true;

    fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    fn is_idle(&self) -> bool {
        is_idle(&self.engine.state)
    }

    fn react(&mut self) -> Result<bool, SimulateError> {
        let ended_before = self.observer.attempts_ended();
        self.follow()?;
        Ok(self.observer.attempts_ended() != ended_before)
    }

    fn planned(&mut self, plan: &Plan) -> Result<(), SimulateError> {
        self.rounds += 1;
        self.placements += plan.placements().count() as u64;
        for (job, blocker) in &plan.blocked {
            if let Blocker::NoSuchHost { .. } | Blocker::ExceedsCluster { .. } = blocker {
                self.withdraw(*job)?;
            }
        }
        if let Some(at) = plan.again_at {
            self.agenda.add(at, Event::Plan);
        }
        Ok(())
    }
}

impl World<'_> {
    /// Plans until nothing is left to decide at this instant.
    pub(super) fn decide(&mut self) -> Result<(), SimulateError> {
        let plan = self.plan_until_settled()?;
        let head = plan.and_then(|plan| self.head(&plan));
        self.observer.record_head(head);
        Ok(())
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
        Ok(())
    }
}
