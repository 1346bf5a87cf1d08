//! Replacement of lost members of running gangs: vacancies are filled before any other turn, because a whole
//! gang waits for one task.
//!
//! No attempt is preempted for them: a gang that finds no room for its new member is eventually restarted
//! whole, and then requests room like any other.

use muster_engine::state::{Attempt, Job, Vacancy, amounts_of};
use muster_model::command::{Command, MemberSwap};
use muster_model::ids::UnitIndex;
use muster_model::limits;

use crate::allowance::is_limited;
use crate::round::Round;
use crate::unit;

impl Round<'_> {
    /// Places a new member in each vacancy for which there is room.
    pub(crate) fn fill_vacancies(&mut self) {
        let state = self.state;
        let vacant = state.index.vacant.iter();
        for id in vacant.take(limits::VACANCIES_PER_ROUND_MAX) {
            let job = state.job(id.job).filter(|job| job.suspension.is_none());
            let attempt = job.and_then(|job| job.unit(id.unit)?.attempt.as_deref());
            let vacancy = attempt.and_then(Attempt::open_vacancy);
            let (Some(job), Some(attempt), Some(vacancy)) = (job, attempt, vacancy) else {
                continue;
            };
            if self.is_over_budget() {
                self.plan.more = true;
                return;
            }
            self.fill(job, id.unit, attempt, vacancy);
        }
    }

    /// Room for a member is taken even while its back-off lasts: no other unit gets it meanwhile.
    fn fill(&mut self, job: &Job, unit: UnitIndex, attempt: &Attempt, vacancy: &Vacancy) {
        let mut trial = self.capacity.clone();
        let Some(task) = unit::place_member(&mut trial, job, unit, attempt, vacancy) else {
            return;
        };
        if is_limited(self.state, &job.spec.queue) {
            let hosts = &self.state.hosts;
            let amounts = amounts_of(hosts, &job.spec, std::slice::from_ref(&task));
            let allocation_basis = &attempt.allocation_basis;
            if self
                .allowance
                .reached(&job.spec, allocation_basis, &amounts)
                .is_some()
            {
                return;
            }
            self.allowance.charge(&job.spec, allocation_basis, &amounts);
        }
        self.capacity = trial;
        if vacancy.not_before.max(self.state.held_until(job)) > self.now {
            return;
        }
        self.plan.steps.push(Command::SwapMember(MemberSwap {
            leader: self.state.leadership.epoch,
            job: job.id,
            unit,
            epoch: attempt.epoch,
            task,
        }));
    }
}
