//! Victims of a virtual cluster: no cheaper set suffices, as an exhaustive search over all sets shows.

use std::collections::BTreeMap;

use muster_engine::rights::lost_work_ms;
use muster_harness::{Cluster, gang, single};
use muster_model::command::{ClaimSpec, Command, GpuHealth};
use muster_model::ids::{JobId, UnitIndex};
use muster_model::quota::{QueueConfig, QueueTree};
use muster_model::spec::{Layout, Within};
use muster_planner::{Budget, plan};

use crate::cells::setup::{Draw, Shape, cells, tree};

/// Number of random cases.
const CASES: u64 = 1_200;

/// Other work of all ages on hosts with two sockets.
fn busy(draw: &mut Draw) -> Cluster {
    let hosts = vec![(4, "A"); 2 + usize::try_from(draw.below(2)).expect("a small number")];
    let shape = Shape {
        hosts: &hosts,
        per_rack: 0,
        per_socket: 2,
    };
    let mut cluster = shape.cluster();
    let quota = match draw.below(2) {
        0 => cells("host", "A", 4, 2),
        _ => cells("socket", "A", 2, 3),
    };
    let mut queues = tree(&[("vc", vec![quota])]);
    if let Some(config) = queues.queues.get_mut("vc") {
        config.borrow = false;
    }
    let others = QueueConfig::default();
    queues.queues.insert("others".to_owned(), others);
    cluster.configure(QueueTree { ..queues });
    for number in 0..3 + draw.below(5) {
        let gpus = 1 + u32::try_from(draw.below(3)).expect("a small number");
        let mut spec = match draw.below(4) {
            0 => gang(&format!("other{number}"), 2, 1),
            _ => single(&format!("other{number}"), 1, gpus),
        };
        spec.queue = "others".to_owned();
        spec.scheduling.opportunistic = draw.below(4) == 0;
        let job = cluster.submit(spec);
        match place(&mut cluster, job) {
            true => cluster.start_all(job),
            false => cancel(&mut cluster, job),
        }
        cluster.wait(1_000 * (1 + draw.below(50)));
    }
    cluster
}

/// Places a job where there is room, without preemption.
fn place(cluster: &mut Cluster, job: JobId) -> bool {
    let planned = plan(&cluster.state, cluster.now, Budget::default());
    let is_placed = planned.placements().any(|placed| placed.job == job);
    for step in planned.steps.iter().filter(|_| is_placed) {
        cluster.apply(step).result.expect("a plan is accepted");
    }
    is_placed
}

fn cancel(cluster: &mut Cluster, job: JobId) {
    let request = cluster.next_request();
    let cancelled = cluster.apply(&Command::CancelJob {
        request,
        job,
        author: "ada".to_owned(),
        reason: String::new(),
    });
    cancelled.result.expect("the job is there");
}

/// A unit of the virtual cluster: one task, or a gang.
fn asking(draw: &mut Draw) -> muster_model::spec::JobSpec {
    let gpus = 1 << draw.below(3);
    let mut spec = match draw.below(3) {
        0 => single("asks", 1, gpus),
        _ => gang(
            "asks",
            1 + u32::try_from(draw.below(3)).expect("a small number"),
            gpus.min(2),
        ),
    };
    spec.queue = "vc".to_owned();
    if spec.gang && draw.below(3) == 0 {
        spec.groups[0].layout = Layout {
            within: Some(Within {
                level: "host".to_owned(),
                required: true,
            }),
            within_tasks: spec.groups[0].count.is_multiple_of(2).then_some(2),
            ..Layout::default()
        };
    }
    spec
}

/// Lost work per running job: of guaranteed and of opportunistic jobs.
fn losses(cluster: &Cluster) -> BTreeMap<JobId, (u64, u64)> {
    let running = cluster.state.jobs.values().filter_map(|job| {
        let unit = job.unit(UnitIndex(0))?;
        let lost_ms = lost_work_ms(unit, unit.attempt.as_deref()?, cluster.now);
        let lost = match job.spec.scheduling.opportunistic {
            true => (0, lost_ms),
            false => (lost_ms, 0),
        };
        Some((job.id, lost))
    });
    running.collect()
}

fn sum<'l>(losses: impl Iterator<Item = &'l (u64, u64)>) -> (u64, u64) {
    losses.fold((0, 0), |(firm, other), (more, of_others)| {
        (firm + more, other + of_others)
    })
}

/// The minimum loss so that the job is placed, if any preemption helps.
fn least(cluster: &Cluster, asks: JobId) -> Option<(u64, u64)> {
    let losses = losses(cluster);
    let jobs: Vec<JobId> = losses.keys().copied().collect();
    let sets = 0..1u32 << jobs.len();
    let enough = sets.filter_map(|set| {
        let victims = (0..jobs.len()).filter(|position| set >> position & 1 == 1);
        let victims: Vec<JobId> = victims.map(|position| jobs[position]).collect();
        let mut fork = cluster.clone();
        for victim in &victims {
            fork.finish_all(*victim);
        }
        let planned = plan(&fork.state, fork.now, Budget::default());
        let placed = planned.placements().any(|placed| placed.job == asks);
        placed.then(|| sum(victims.iter().filter_map(|victim| losses.get(victim))))
    });
    enough.min()
}

#[test]
fn no_other_sufficient_set_of_victims_loses_less_work() {
    let (mut claimed, mut chosen) = (0, 0);
    for case in 0..CASES {
        let mut draw = Draw(case);
        let mut cluster = busy(&mut draw);
        let losses = losses(&cluster);
        let asks = cluster.submit(asking(&mut draw));
        let planned = plan(&cluster.state, cluster.now, Budget::default());
        let mut claims = planned.claims();
        let claim = claims.find(|claim| claim.job == asks && !claim.victims.is_empty());
        let of = |claim: &ClaimSpec| {
            let victims = claim.victims.iter();
            sum(victims.filter_map(|victim| losses.get(&victim.job)))
        };
        let least = least(&cluster, asks);
        match claim {
            Some(claim) => assert_eq!(Some(of(claim)), least, "case {case}: {claim:?}"),
            None => assert!(
                least.is_none_or(|least| least == (0, 0)),
                "case {case}: {least:?}"
            ),
        }
        claimed += u32::from(claim.is_some());
        chosen += u32::from(claim.is_some() && losses.len() > 2);
    }
    assert!(
        claimed > 300 && chosen > 200,
        "{claimed} and {chosen} of {CASES}: draw others"
    );
}

/// Whether a virtual cluster's job stops another job whose earlier task left the host's other GPU unfit for
/// `signal`.
fn is_victim_beside(signal: &str) -> bool {
    let shape = Shape {
        hosts: &[(2, "A")],
        per_rack: 0,
        per_socket: 0,
    };
    let mut cluster = shape.cluster();
    let mut queues = tree(&[("vc", vec![cells("gpu", "A", 1, 1)])]);
    let others = QueueConfig::default();
    queues.queues.insert("others".to_owned(), others);
    cluster.configure(queues);
    let mut old = single("old", 1, 1);
    old.queue = "others".to_owned();
    let old = cluster.submit(old);
    assert!(place(&mut cluster, old));
    cluster.start_all(old);
    cluster.leave_unfit(old, signal);
    let mut asks = single("asks", 1, 1);
    asks.queue = "vc".to_owned();
    let asks = cluster.submit(asks);
    let planned = plan(&cluster.state, cluster.now, Budget::default());
    let mut claims = planned.claims();
    claims.any(|claim| claim.job == asks && claim.victims.iter().any(|victim| victim.job == old))
}

#[test]
fn an_attempt_with_an_unkillable_task_is_not_preempted_for_a_virtual_cluster() {
    assert!(is_victim_beside("xid-48"));
    assert!(!is_victim_beside(GpuHealth::TASK_STUCK));
}
