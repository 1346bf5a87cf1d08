//! Forks of small clusters: exact results by hand, and properties of random ones.
mod by_hand;
mod drawn;
mod queues;

use std::sync::Arc;

use muster_harness::Cluster;
use muster_model::ids::{JobId, UnitIndex};
use muster_model::spec::JobSpec;
use muster_planner::{Budget, plan};
use muster_simulate::fork::{Change, Difference, Fork, ForkError, ForkSettings, what_if};

/// Runs a what-if with audits after every instant.
fn asked(cluster: &Cluster, changes: &[Change]) -> Result<Difference, ForkError> {
    let settings = ForkSettings {
        audit_every: Some(1),
        ..ForkSettings::default()
    };
    let fork = Fork {
        state: cluster.state.clone(),
        now: cluster.now,
    };
    what_if(&fork, changes, settings, &mut |_| ())
}

fn ask(cluster: &Cluster, changes: &[Change]) -> Difference {
    asked(cluster, changes).unwrap()
}

fn submit(spec: JobSpec) -> Change {
    Change::Submit(Arc::new(spec))
}

/// A job with a time limit, in seconds.
fn limited(mut spec: JobSpec, limit_s: u64) -> JobSpec {
    spec.scheduling.run_time_ms_max = Some(limit_s * 1_000);
    spec
}

/// Plans and starts placed units until nothing is left to decide.
fn settle(cluster: &mut Cluster) {
    loop {
        let plan = plan(&cluster.state, cluster.now, Budget::default());
        if plan.steps.is_empty() {
            return;
        }
        for step in &plan.steps {
            cluster.apply(step).result.unwrap();
        }
        let jobs: Vec<JobId> = cluster.state.jobs.keys().copied().collect();
        for job in jobs {
            cluster.start_all(job);
            cluster.stop_all(job);
        }
    }
}

/// Submits a job and lets it run, if there is room.
fn run(cluster: &mut Cluster, spec: JobSpec) -> JobId {
    let job = cluster.submit(spec);
    settle(cluster);
    job
}

/// The GPUs of a job's first unit, by host.
fn gpus_of(cluster: &Cluster, job: JobId) -> Vec<(String, Vec<String>)> {
    let attempt = cluster.attempt(job, UnitIndex(0));
    let mut places: Vec<(String, Vec<String>)> = Vec::new();
    for run in attempt.map_or(&[][..], |attempt| &attempt.tasks) {
        let host = cluster.state.host(run.host).unwrap().name.to_string();
        let gpus = run.gpus.iter().map(ToString::to_string);
        match places.last_mut().filter(|(known, _)| *known == host) {
            Some((_, known)) => known.extend(gpus),
            None => places.push((host, gpus.collect())),
        }
    }
    places
}
