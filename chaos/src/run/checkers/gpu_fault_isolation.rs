//! Checker for P4: a GPU fault takes that GPU out of placement and displaces only its holder.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::desired::RestartReason;
use muster_model::event::EventKind;
use muster_model::health::Component;
use muster_model::ids::{AttemptEpoch, GpuUuid, JobId, Revision, UnitIndex};

use crate::run::checkers::{Evidence, Invariant, Violation};
use crate::run::load::WatchedEvents;
use crate::run::nemesis::{Episode, NO_TARGET};
use crate::run::replay::{Grant, ReplayedLog};

/// Units displaced by a GPU fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::run) struct Displaced {
    /// Number of units that held the GPU.
    pub(in crate::run) holders: usize,
    /// Units that did not hold it.
    pub(in crate::run) bystanders: Vec<(JobId, UnitIndex)>,
}

impl Displaced {
    /// Displaced units from the fault until the cluster has recovered; `None` if no GPU was hit.
    pub(in crate::run) fn by(
        episode: &Episode,
        watched: &WatchedEvents,
        grants: &BTreeMap<AttemptEpoch, Grant>,
    ) -> Self {
        let mut displaced = Self::default();
        let Some(gpu) = episode.gpu else {
            return displaced;
        };
        let mut ended: BTreeMap<(JobId, UnitIndex), AttemptEpoch> = BTreeMap::new();
        let kinds = watched.kinds_since(episode.began_us);
        for (_, kind) in kinds.take_while(|(at_us, _)| *at_us <= episode.ended_us()) {
            match kind {
                EventKind::AttemptEnded {
                    job, unit, epoch, ..
                } => {
                    ended.insert((job, unit), epoch);
                }
                EventKind::UnitRequeued {
                    job,
                    unit,
                    reason: RestartReason::Infra,
                    ..
                } => {
                    let epoch = ended.get(&(job, unit));
                    match epoch.and_then(|epoch| grants.get(epoch)) {
                        Some(grant) if grant.gpus.contains(&gpu) => displaced.holders += 1,
                        Some(_) => displaced.bystanders.push((job, unit)),
                        // Its attempt ended before the fault.
                        None => {}
                    }
                }
                _ => {}
            }
        }
        displaced
    }
}

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    let watched = evidence.earliest();
    let mut found = Vec::new();
    for episode in &evidence.episodes {
        let displaced = Displaced::by(episode, &watched, &evidence.log.grants);
        found.extend(displaced.bystanders.iter().map(|(job, unit)| Violation {
            invariant: Invariant::GpuFaultIsolation,
            text: format!(
                "unit {unit} of job {job} was displaced by the fault of {}, which it did not hold",
                episode.target
            ),
        }));
    }
    found.extend(left_in_use(&evidence.episodes, &evidence.log));
    found
}

/// GPUs that were certainly broken according to their agents, but never taken out of placement. Each is
/// broken once in a run.
fn left_in_use(episodes: &[Episode], truth: &ReplayedLog) -> Vec<Violation> {
    let mut found = Vec::new();
    if truth.base > Revision(0) {
        return found;
    }
    let closed = closed(truth);
    for episode in episodes.iter().filter(|it| it.target != NO_TARGET) {
        if episode.gpu.is_some_and(|gpu| !closed.contains(&gpu)) {
            let text = format!("{} was broken and stayed in placement", episode.target);
            let invariant = Invariant::GpuFaultIsolation;
            found.push(Violation { invariant, text });
        }
    }
    found
}

/// GPUs that were out of placement at some time.
fn closed(truth: &ReplayedLog) -> BTreeSet<GpuUuid> {
    let events = truth.events.values().flatten();
    // Event kinds unknown to this build are not checked here.
    let kinds = events.cloned().map(EventKind::try_from);
    let closed = kinds.flatten().filter_map(|kind| match kind {
        EventKind::HealthChanged {
            component: Component::Gpu(gpu),
            to,
            ..
        } if !to.accepts_work() => Some(gpu),
        _ => None,
    });
    closed.collect()
}

#[cfg(test)]
mod tests {
    use muster_model::health::Phase;
    use muster_model::ids::HostId;
    use muster_model::time::TimeMs;
    use muster_proto::v1;

    use super::*;
    use crate::cluster::Fault;
    use crate::run::load::Delivery;

    #[test]
    fn who_lost_its_place_without_holding_the_gpu_is_a_bystander() {
        let grant = |job, gpu| Grant {
            job: JobId(job),
            unit: UnitIndex(0),
            number: 1,
            gpus: BTreeSet::from([GpuUuid(gpu)]),
        };
        let grants = BTreeMap::from([
            (AttemptEpoch(4), grant(1, 7)),
            (AttemptEpoch(5), grant(2, 8)),
            (AttemptEpoch(6), grant(3, 8)),
        ]);
        let requeued = |job, epoch, at_us, reason| {
            let (job, unit) = (JobId(job), UnitIndex(0));
            let kinds = [
                EventKind::AttemptEnded {
                    job,
                    unit,
                    epoch: AttemptEpoch(epoch),
                    hosts: Vec::new(),
                    detail: String::new(),
                    attribution: None,
                },
                EventKind::UnitRequeued {
                    job,
                    unit,
                    reason,
                    not_before: TimeMs(0),
                },
            ];
            Delivery {
                revision: Revision(at_us),
                events: kinds.iter().map(v1::Event::from).collect(),
                at_us,
            }
        };
        let infra = RestartReason::Infra;
        let watched = WatchedEvents {
            deliveries: vec![
                requeued(1, 4, 2_000, infra),
                requeued(2, 5, 3_000, infra),
                // Restarted by its user; and after recovery.
                requeued(3, 6, 4_000, RestartReason::User),
                requeued(3, 6, 9_000, infra),
            ],
            ..WatchedEvents::default()
        };
        let mut episode = Episode::of(Fault::GpuFaulted);
        assert_eq!(
            Displaced::by(&episode, &watched, &grants),
            Displaced::default()
        );
        episode.gpu = Some(GpuUuid(7));
        let displaced = Displaced::by(&episode, &watched, &grants);
        let bystanders = vec![(JobId(2), UnitIndex(0))];
        assert_eq!(
            displaced,
            Displaced {
                holders: 1,
                bystanders
            }
        );
    }

    #[test]
    fn a_broken_gpu_that_stays_in_use_is_noticed() {
        let changed = |to| {
            let kind = EventKind::HealthChanged {
                component: Component::Gpu(GpuUuid(7)),
                host: HostId(1),
                host_name: "node01".to_owned(),
                from: Phase::Healthy,
                to,
                rule: "xid".to_owned(),
                evidence: String::new(),
            };
            ReplayedLog {
                events: BTreeMap::from([(Revision(9), vec![v1::Event::from(&kind)])]),
                ..ReplayedLog::default()
            }
        };
        let broken = |gpu| Episode {
            gpu,
            ..Episode::of(Fault::GpuFaulted)
        };
        let found = |gpu, to| left_in_use(&[broken(gpu)], &changed(to)).len();
        assert_eq!(found(Some(GpuUuid(7)), Phase::Blocked), 0);
        assert_eq!(found(Some(GpuUuid(7)), Phase::Suspect), 1);
        assert_eq!(found(Some(GpuUuid(8)), Phase::Blocked), 1);
        assert_eq!(found(None, Phase::Suspect), 0);
        // The fault was not injected.
        let refused = Episode {
            target: NO_TARGET.to_owned(),
            ..broken(Some(GpuUuid(8)))
        };
        assert_eq!(left_in_use(&[refused], &changed(Phase::Blocked)).len(), 0);
    }
}
