//! Pruning, which keeps the state bounded: the same records at the same revision on every replica.

use muster_model::event::EventKind;
use muster_model::ids::JobId;
use muster_model::limits;
use muster_model::time::TimeMs;

use crate::apply::Step;
use crate::state::Answer;

impl Step<'_> {
    /// Removes answers and finished jobs past their retention, at most `PRUNED_PER_COMMAND_MAX` of each.
    pub(in crate::apply) fn prune(&mut self) -> Answer {
        let time = self.state.time;
        let answers_before = TimeMs(time.0.saturating_sub(limits::REQUEST_KEPT_MS));
        let requests = &mut self.state.requests;
        let mut count = requests.prune(answers_before, limits::PRUNED_PER_COMMAND_MAX);
        for _ in 0..limits::PRUNED_PER_COMMAND_MAX {
            let Some((finished_at, job)) = self.expired_job() else {
                break;
            };
            self.forget_job(finished_at, job);
            count += 1;
        }
        Answer::Count(count as u64)
    }

    fn expired_job(&self) -> Option<(TimeMs, JobId)> {
        let finished = &self.state.index.finished;
        let oldest = *finished.get_min()?;
        let too_old = self.state.time.since(oldest.0) > limits::FINISHED_JOB_KEPT_MS;
        let too_many = finished.len() > limits::FINISHED_JOBS_KEPT_MAX;
        (too_old || too_many).then_some(oldest)
    }

    fn forget_job(&mut self, finished_at: TimeMs, id: JobId) {
        self.state.index.finished.remove(&(finished_at, id));
        if let Some(job) = self.state.jobs.remove(&id) {
            self.state.index.run_times.forget(&job);
            self.state.index.forget_in_pipeline(&job);
        }
        self.emit(EventKind::JobPruned { job: id });
    }
}
