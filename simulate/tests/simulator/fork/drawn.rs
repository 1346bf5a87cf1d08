//! Properties of forks of random clusters.

use muster_engine::apply::apply;
use muster_engine::state::State;
use muster_harness::{Cluster, draw_command, gang, single};
use muster_planner::{Budget, plan};
use muster_simulate::fork::{Fork, ForkSettings, HostGpus, what_if};
use proptest::prelude::*;

use crate::fork::{ask, gpus_of, limited, run, settle, submit};

/// State after a random history.
fn drawn(entropy: &[u64]) -> State {
    let mut state = Cluster::with_hosts(2, 8).state;
    for number in entropy {
        let (time, command) = draw_command(&state, *number);
        // Some are refused, as in real use.
        drop(apply(&mut state, time, &command).result);
    }
    state
}

/// Jobs that fill a part of a cluster: tasks, GPUs of each, whether a gang, and a time limit.
fn jobs() -> impl Strategy<Value = Vec<(u32, u32, bool, u64)>> {
    let job = (1..4u32, 0..9u32, any::<bool>(), 60..6_000u64);
    proptest::collection::vec(job, 0..8)
}

fn cluster_with(jobs: &[(u32, u32, bool, u64)]) -> Cluster {
    let mut cluster = Cluster::with_hosts(4, 8);
    for (tasks, gpus, is_gang, limit_s) in jobs {
        let spec = if *is_gang {
            gang("job", *tasks, *gpus)
        } else {
            single("job", *tasks, *gpus)
        };
        run(&mut cluster, limited(spec, *limit_s));
        cluster.wait(1_000);
    }
    settle(&mut cluster);
    cluster
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn without_a_change_nothing_changes(entropy in proptest::collection::vec(any::<u64>(), 0..120)) {
        let state = drawn(&entropy);
        let settings = ForkSettings { audit_every: Some(1), ..ForkSettings::default() };
        let fork = Fork { now: state.time, state };
        let difference = what_if(&fork, &[], settings, &mut |_| ()).unwrap();
        prop_assert_eq!(difference.affected.len(), 0);
        prop_assert_eq!(difference.stops.len(), 0);
        prop_assert_eq!(difference.now, difference.then);
    }

    #[test]
    fn a_fork_of_any_state_plays_the_same_twice(
        entropy in proptest::collection::vec(any::<u64>(), 0..120),
    ) {
        let state = drawn(&entropy);
        let settings = ForkSettings { audit_every: Some(1), ..ForkSettings::default() };
        let fork = Fork { now: state.time, state };
        let change = [submit(gang("new", 2, 3))];
        let ask = || what_if(&fork, &change, settings, &mut |_| ());
        // A random cluster may have retired or filled the queue: then both are refused.
        prop_assert_eq!(format!("{:?}", ask()), format!("{:?}", ask()));
    }

    #[test]
    fn a_quiet_cluster_places_a_job_as_the_fork_predicted(
        jobs in jobs(), tasks in 1..4u32, gpus in 0..9u32, is_gang in any::<bool>(),
    ) {
        let mut cluster = cluster_with(&jobs);
        let spec = if is_gang { gang("new", tasks, gpus) } else { single("new", tasks, gpus) };
        let predicted = ask(&cluster, &[submit(spec.clone())]).submitted.remove(0);
        let job = cluster.submit(spec);
        for step in plan(&cluster.state, cluster.now, Budget::default()).steps {
            cluster.apply(&step).result.unwrap();
        }
        let places: Vec<HostGpus> = gpus_of(&cluster, job)
            .into_iter()
            .map(|(host, gpus)| HostGpus { host, gpus })
            .collect();
        if places.is_empty() {
            prop_assert_ne!(predicted.then.start_ms, Some(0));
        } else {
            prop_assert_eq!(predicted.then.start_ms, Some(0));
            prop_assert_eq!(predicted.then.places, places);
        }
    }
}
