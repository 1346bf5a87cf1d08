//! Work affected by a GPU that computes wrong results.

use muster_model::event::{EventKind, HealthNote};
use muster_model::health::Component;
use muster_model::ids::{AttemptEpoch, GpuUuid, HostId, UnitId};
use muster_model::limits;
use muster_model::time::DAY_MS;

use crate::apply::Step;
use crate::apply::attempt::ending::bit;
use crate::state::{State, Unit};

/// Age up to which work on a faulty GPU is doubted.
const DOUBTED_MS: u64 = DAY_MS;

/// An attempt that ran on the GPU.
type Doubted = (UnitId, AttemptEpoch);

impl Step<'_> {
    /// Notifies the owners of work that ran on a component within a day that its results may be wrong.
    pub(super) fn doubt_results(&mut self, component: &Component, evidence: &str) {
        let (Component::Gpu(gpu), Some(host)) = (component, self.host_of(component)) else {
            return;
        };
        let doubted = were_on(self.state, host, *gpu);
        let place = self.place_named(component);
        for (id, epoch) in doubted.iter().take(limits::DOUBTED_REPORTED_MAX) {
            let UnitId { job, unit } = *id;
            self.emit(EventKind::HealthNoted {
                note: HealthNote::Doubt,
                subject: format!("job {job}, unit {unit}, epoch {epoch}"),
                detail: format!(
                    "its results may be wrong: it ran on {place}, which computes wrong results ({evidence})"
                ),
                job: Some(job),
            });
        }
        let count = doubted.len();
        let recorded = count.min(limits::DOUBTED_REPORTED_MAX);
        let detail = format!(
            "its results may be wrong: {count} attempts ran on it within a day; \
             {recorded} are recorded in the events of their jobs"
        );
        self.emit_component_note(HealthNote::Alert, component, detail);
    }
}

/// Returns the attempts that hold a GPU or held it within a day, as far as they are kept. A GPU that was in
/// another host meanwhile is looked up in its current host.
fn were_on(state: &State, host: HostId, gpu: GpuUuid) -> Vec<Doubted> {
    let known = state.host(host).map_or(&[][..], |host| &host.gpus);
    let position = known.iter().position(|known| known.uuid == gpu);
    let wanted = position.map_or(0, bit);
    let was_on = |unit: &Unit| -> Vec<AttemptEpoch> {
        let past = unit.past.iter().filter(|past| {
            let mut held = past.hosts.iter().zip(&past.gpus);
            state.time.since(past.ended_at) <= DOUBTED_MS
                && held.any(|(at, gpus)| *at == host && gpus & wanted != 0)
        });
        let now = unit.attempt.iter().filter(|attempt| {
            let mut runs = attempt.tasks.iter();
            runs.any(|run| run.gpus.contains(&gpu))
        });
        past.map(|past| past.epoch)
            .chain(now.map(|attempt| attempt.epoch))
            .collect()
    };
    let units = state.jobs.values().flat_map(|job| {
        let units = job.units.iter();
        units.map(|(index, unit)| (UnitId::new(job.id, *index), unit))
    });
    units
        .flat_map(|(id, unit)| {
            let epochs = was_on(unit).into_iter();
            epochs.map(move |epoch| (id, epoch))
        })
        .collect()
}
