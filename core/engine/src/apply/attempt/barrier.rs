//! Start barrier of gangs: members start only when all of them are prepared.
//!
//! A prepared member holds its resources, but no user process runs. Once the last one is prepared, the leader
//! releases the gang in one step; the rendezvous port that all members share is fixed then.

use muster_model::event::EventKind;
use muster_model::ids::{AttemptEpoch, JobId, UnitId, UnitIndex};
use muster_model::job::Barrier;
use muster_model::lifecycle::TaskPhase;
use muster_model::rejection::Rejection;

use crate::apply::Step;
use crate::desired;
use crate::state::{Answer, Attempt};

impl Step<'_> {
    pub(in crate::apply) fn release_gang(
        &mut self,
        job: JobId,
        unit: UnitIndex,
        epoch: AttemptEpoch,
    ) -> Result<Answer, Rejection> {
        let id = UnitId::new(job, unit);
        let (_, attempt) = self.current_attempt(id, epoch)?;
        if attempt
            .barrier
            .is_some_and(|barrier| barrier.released_at.is_some())
        {
            return Ok(Answer::Done);
        }
        if !attempt.is_whole() {
            return Err(Rejection::GangNotWhole {
                job,
                unit,
                detail: why_not_whole(attempt),
            });
        }
        let time = self.state.time;
        let hosts = attempt.hosts();
        let barrier = Barrier {
            released_at: Some(time),
            ..attempt.barrier.unwrap_or_default()
        };
        self.attempt_mut(id).barrier = Some(barrier);
        self.state.index.prepared_gangs.remove(&id);
        for host in &hosts {
            self.touch_desired(*host);
        }
        let master_port = barrier.master_port;
        self.emit(EventKind::GangReleased {
            job,
            unit,
            epoch,
            hosts,
            master_port: master_port.unwrap_or_else(|| desired::master_port(epoch)),
        });
        Ok(Answer::Done)
    }

    /// Records the rendezvous port that rank 0's host reserved for the gang.
    pub(in crate::apply) fn note_master_port(&mut self, id: UnitId, master_port: u16) {
        let attempt = self.attempt_mut(id);
        let Some(barrier) = &mut attempt.barrier else {
            return;
        };
        barrier.master_port = Some(master_port);
        if barrier.released_at.is_some() {
            // Rank 0 was swapped: the others need its new address.
            self.touch_hosts_of_unit(id);
        }
    }

    /// Updates whether a gang waits only for its release.
    pub(in crate::apply) fn note_whole(&mut self, id: UnitId) {
        let attempt = self.state.attempt(id);
        if attempt.is_some_and(Attempt::is_whole) {
            self.state.index.prepared_gangs.insert(id);
        } else {
            self.state.index.prepared_gangs.remove(&id);
        }
    }
}

fn why_not_whole(attempt: &Attempt) -> String {
    if attempt.barrier.is_none() {
        return "its members do not wait for each other".to_owned();
    }
    if attempt.stop.is_some() {
        return "it is being stopped".to_owned();
    }
    let mut runs = attempt.tasks.iter();
    let open = runs.find(|run| run.phase == TaskPhase::Assigned);
    open.map_or_else(String::new, |run| {
        format!("task {} is not prepared", run.task)
    })
}
