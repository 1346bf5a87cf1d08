//! Guard rails with buggy jobs, wrong rules and failures of whole racks.

use muster_model::ids::GpuUuid;
use muster_model::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};

use super::*;
use crate::guard_rails::incidents::GROUPS_MAX;
use crate::guard_rails::ledger::CAUSERS_MAX;

/// A pool of 100 hosts with eight GPUs each.
const POOL: PoolView = PoolView {
    gpus: 800,
    hosts: 100,
    hosts_in_service: 100,
    gpus_blocked_soft: 0,
    gpus_blocked_hard: 0,
    repairs: 0,
    repairs_in_rack: 0,
};

const GPU: Component = Component::Gpu(GpuUuid(1));

fn soft(host: u32, gpus: u32, at: u64) -> Proposal<'static> {
    Proposal {
        component: &GPU,
        host: HostId(host),
        scope: Scope::Host,
        gpus,
        weight: Weight::Soft,
        pool: "a100",
        job: None,
        tenant: None,
        users: 2,
        at: TimeMs(at),
    }
}

fn rail(verdict: Verdict) -> Option<Rail> {
    match verdict {
        Verdict::Allowed => None,
        Verdict::Refused(refused) | Verdict::PlacementOnly(refused) => Some(refused.rail),
    }
}

/// A rule that finds 60 % of a cluster bad at once.
#[test]
fn a_bad_rule_takes_a_twentieth_of_the_pool_and_trips_the_breaker() {
    let mut rails = Rails::default();
    let mut view = POOL;
    let mut last = None;
    for host in 0..60 {
        let verdict = rails.admit(&soft(host, 8, u64::from(host)), &view);
        if verdict == Verdict::Allowed {
            view.gpus_blocked_soft += 8;
            view.hosts_in_service -= 1;
        }
        last = rail(verdict);
    }
    assert_eq!((view.gpus_blocked_soft, last), (40, Some(Rail::Breaker)));
    assert!(rails.breaker("a100").expect("it was needed").is_tripped());
    // Another pool continues, and so does hard evidence.
    let mut elsewhere = soft(1, 8, 100);
    elsewhere.pool = "h100";
    assert_eq!(rails.admit(&elsewhere, &POOL), Verdict::Allowed);
    let mut hard = soft(70, 8, 100);
    hard.weight = Weight::Hard;
    assert_eq!(rails.admit(&hard, &view), Verdict::Allowed);
    // An operator has looked.
    rails.reset_breaker("a100");
    let later = soft(71, 8, 2 * HOUR_MS);
    assert_eq!(rails.admit(&later, &view), Verdict::Allowed);
}

#[test]
fn a_refusal_states_its_figures_and_a_remedy() {
    let mut rails = Rails::default();
    for host in 0..5 {
        assert_eq!(rails.admit(&soft(host, 8, 0), &POOL), Verdict::Allowed);
    }
    let Verdict::Refused(refused) = rails.admit(&soft(5, 8, 0), &POOL) else {
        panic!("one too many");
    };
    assert_eq!(
        refused.to_string(),
        "soft_blocks_in_an_hour: it would be 60 of at most 50; look at the rule that blocks so much, then reset \
         the breaker or block by hand"
    );
}

#[test]
fn open_blocks_count_against_the_budget_beyond_the_hour() {
    let mut rails = Rails::default();
    let mut view = POOL;
    view.gpus_blocked_soft = 72;
    let mut allowed = 0;
    for host in 0..3 {
        if rails.admit(&soft(host, 8, 0), &view) == Verdict::Allowed {
            allowed += 1;
            view.gpus_blocked_soft += 8;
        }
    }
    // Two hosts are always allowed; the third would exceed a tenth.
    assert_eq!(allowed, 2);
    assert!(rails.breaker("a100").expect("it was needed").is_tripped());
}

#[test]
fn the_breaker_closes_once_the_wave_is_over() {
    let mut rails = Rails::default();
    for host in 0..20 {
        rails.admit(&soft(host, 8, u64::from(host) * SECOND_MS), &POOL);
    }
    let breaker = |rails: &Rails| {
        rails
            .breaker("a100")
            .expect("it was needed")
            .tripped_since()
    };
    assert_eq!(breaker(&rails), Some(TimeMs(5 * SECOND_MS)));
    // Proposals keep coming: it stays tripped, however long.
    for minute in 1..90 {
        for host in 0..2 {
            rails.admit(&soft(host, 8, minute * MINUTE_MS), &POOL);
        }
    }
    assert_eq!(rails.tick(TimeMs(90 * MINUTE_MS)), Vec::<String>::new());
    // It survives snapshot and failover: it is plain data.
    let mut copy = rails.clone();
    assert_eq!(breaker(&copy), breaker(&rails));
    assert_eq!(copy.tick(TimeMs(119 * MINUTE_MS)), ["a100"]);
    assert_eq!(breaker(&copy), None);
}

#[test]
fn a_small_pool_may_lose_two_hosts_but_not_its_last() {
    let mut rails = Rails::default();
    let mut view = PoolView {
        gpus: 24,
        hosts: 3,
        hosts_in_service: 3,
        ..PoolView::default()
    };
    for host in 0..2 {
        assert_eq!(rails.admit(&soft(host, 8, 0), &view), Verdict::Allowed);
        view.hosts_in_service -= 1;
        view.gpus_blocked_soft += 8;
    }
    assert_eq!(
        rail(rails.admit(&soft(2, 8, 0), &view)),
        Some(Rail::LastHost)
    );
    assert_eq!(
        Rails::admit_admin(1, &view).expect_err("the last").rail,
        Rail::LastHost
    );
    view.hosts_in_service = 2;
    assert_eq!(Rails::admit_admin(1, &view), Ok(()));
}

#[test]
fn beyond_a_fifth_of_broken_hardware_nothing_more_is_killed() {
    let mut rails = Rails::default();
    let mut view = POOL;
    let mut verdicts = Vec::new();
    for host in 0..25 {
        let mut hard = soft(host, 8, 0);
        hard.weight = Weight::Hard;
        verdicts.push(rails.admit(&hard, &view));
        view.gpus_blocked_hard += 8;
    }
    assert!(verdicts[..20].iter().all(|it| *it == Verdict::Allowed));
    for verdict in &verdicts[20..] {
        assert!(matches!(verdict, Verdict::PlacementOnly(it) if it.rail == Rail::Hard));
    }
}

/// One user with 200 failing jobs, and then others.
#[test]
fn a_storm_of_buggy_jobs_blocks_three_times_at_most() {
    let mut rails = Rails::default();
    let mut allowed = 0;
    for job in 0..200u64 {
        let mut proposal = soft(job as u32, 1, job * MINUTE_MS);
        proposal.job = Some(JobId(job));
        proposal.tenant = Some("eve");
        if rails.admit(&proposal, &POOL) == Verdict::Allowed {
            allowed += 1;
        } else {
            assert_eq!(rail(rails.admit(&proposal, &POOL)), Some(Rail::Tenant));
        }
    }
    assert_eq!(allowed, 3);
    assert!(!rails.breaker("a100").expect("it was needed").is_tripped());
    let mut later = soft(1, 1, 3 * DAY_MS);
    later.job = Some(JobId(900));
    later.tenant = Some("eve");
    assert_eq!(rails.admit(&later, &POOL), Verdict::Allowed);
}

#[test]
fn one_job_and_one_user_have_their_limits() {
    let mut rails = Rails::default();
    let of = |job: u64, tenant: &'static str| Proposal {
        job: Some(JobId(job)),
        tenant: Some(tenant),
        ..soft(1, 1, 0)
    };
    for _ in 0..2 {
        assert_eq!(rails.admit(&of(1, "ann"), &POOL), Verdict::Allowed);
    }
    assert_eq!(rail(rails.admit(&of(1, "ann"), &POOL)), Some(Rail::Job));
    let alone = Proposal {
        users: 1,
        ..of(2, "bob")
    };
    assert_eq!(rail(rails.admit(&alone, &POOL)), Some(Rail::Users));
    for job in 0..CAUSERS_MAX as u64 + 10 {
        let mut proposal = of(100 + job, "zoe");
        proposal.tenant = None;
        proposal.at = TimeMs(job);
        proposal.pool = if job % 2 == 0 { "x" } else { "y" };
        rails.admit(
            &proposal,
            &PoolView {
                gpus: 1_000_000,
                ..POOL
            },
        );
    }
}

#[test]
fn repairs_are_few_at_a_time_and_never_of_the_last_host() {
    let rails = Rails::default();
    let refused_by = |view: PoolView| rails.admit_repair(&view).err().map(|it| it.rail);
    assert_eq!(
        refused_by(PoolView {
            hosts_in_service: 90,
            repairs: 9,
            ..POOL
        }),
        None
    );
    let many = PoolView {
        hosts_in_service: 90,
        repairs: 10,
        ..POOL
    };
    assert_eq!(refused_by(many), Some(Rail::Repairs));
    let rack = PoolView {
        hosts_in_service: 90,
        repairs: 1,
        repairs_in_rack: 1,
        ..POOL
    };
    assert_eq!(refused_by(rack), Some(Rail::RackRepair));
    let small = PoolView {
        hosts: 2,
        hosts_in_service: 1,
        ..PoolView::default()
    };
    assert_eq!(refused_by(small), None);
    assert_eq!(
        refused_by(PoolView {
            hosts_in_service: 0,
            ..small
        }),
        Some(Rail::LastHost)
    );
}

fn group(kind: GroupKind, name: &str) -> Group {
    Group {
        kind,
        name: name.to_owned(),
    }
}

#[test]
fn a_rack_that_fails_at_once_is_one_incident() {
    let mut incidents = Incidents::default();
    let groups = [
        (group(GroupKind::Rack, "r1"), 20),
        (group(GroupKind::Cluster, ""), 1_000),
    ];
    let mut found = None;
    for host in 0..20u32 {
        let now = TimeMs(u64::from(host) * SECOND_MS);
        let is_incident = incidents
            .record_failure(now, HostId(host), &groups)
            .is_some();
        if is_incident && found.is_none() {
            found = Some(host);
        }
        assert_eq!(is_incident, found.is_some());
    }
    // Half of the rack starts one, and includes the first hosts as well.
    assert_eq!(found, Some(9));
    let now = TimeMs(20 * SECOND_MS);
    let incident = incidents.of(HostId(0), now).expect("it is held");
    assert_eq!(
        (incident.group.name.as_str(), incident.hosts.len()),
        ("r1", 20)
    );
    assert_eq!(incidents.of(HostId(99), now), None);
    assert_eq!(incidents.over(TimeMs(128 * SECOND_MS)), []);
    // All at once, two minutes after it was detected.
    let over = incidents.over(TimeMs(129 * SECOND_MS));
    assert_eq!((over.len(), over[0].hosts.len()), (1, 20));
    assert_eq!(incidents.of(HostId(0), TimeMs(129 * SECOND_MS)), None);
}

#[test]
fn faults_apart_are_no_incident() {
    let mut incidents = Incidents::default();
    let groups = [(group(GroupKind::Rack, "r1"), 4)];
    for host in 0..8u32 {
        let now = TimeMs(u64::from(host) * 31 * SECOND_MS);
        assert_eq!(
            incidents.record_failure(now, HostId(host % 4), &groups),
            None,
            "{host}"
        );
    }
    // Two hosts of a rack of two do not count as a rack.
    let small = [(group(GroupKind::Rack, "r2"), 2)];
    for host in 0..2 {
        assert_eq!(
            incidents.record_failure(TimeMs(0), HostId(host), &small),
            None
        );
    }
}

#[test]
fn failures_across_racks_are_one_incident_of_their_storage_system() {
    let mut incidents = Incidents::default();
    let mut found = Vec::new();
    for host in 0..30u32 {
        let rack = format!("r{}", host % 10);
        let groups = [
            (group(GroupKind::Rack, &rack), 10),
            (group(GroupKind::Storage, "lustre"), 60),
            (group(GroupKind::Cluster, ""), 100),
        ];
        if let Some(incident) = incidents.record_failure(TimeMs(1), HostId(host), &groups) {
            found.push(incident.group.kind);
        }
    }
    // A tenth of the cluster is bad before a third of the storage's hosts is; all of it is attributed to the
    // storage.
    assert_eq!(found[0], GroupKind::Storage);
    let mut fresh = Incidents::default();
    let groups = [
        (group(GroupKind::Storage, "nfs"), 10),
        (group(GroupKind::Cluster, ""), 1_000),
    ];
    let kinds: Vec<_> = (0..4)
        .filter_map(|host| {
            fresh
                .record_failure(TimeMs(1), HostId(host), &groups)
                .map(|it| it.group.kind)
        })
        .collect();
    assert_eq!(kinds, [GroupKind::Storage; 2]);
}

#[test]
fn an_incident_is_named_after_the_smallest_group_with_all_its_hosts() {
    let kind_of = |groups: &dyn Fn(u32) -> Vec<(Group, u32)>, hosts: u32| {
        let mut incidents = Incidents::default();
        let mut found = None;
        for host in 0..hosts {
            let incident = incidents.record_failure(TimeMs(1), HostId(host), &groups(host));
            found = found.or(incident.map(|it| it.group.kind));
        }
        found
    };
    let cluster = || (group(GroupKind::Cluster, ""), 100);
    let rack = |host: u32| {
        let rack = group(GroupKind::Rack, &format!("r{}", host % 5));
        (rack, 20)
    };
    // Hosts of five racks of one pod, which has half of the cluster.
    let in_pod = |host| vec![cluster(), rack(host), (group(GroupKind::Switch, "p"), 50)];
    assert_eq!(kind_of(&in_pod, 10), Some(GroupKind::Switch));
    // Of two pods: only the cluster contains them all.
    let in_pods = |host: u32| {
        let pod = group(GroupKind::Switch, &format!("p{}", host % 2));
        vec![cluster(), rack(host), (pod, 50)]
    };
    assert_eq!(kind_of(&in_pods, 10), Some(GroupKind::Cluster));
    // A driver release that most hosts have explains nothing before half of them are bad; a rare one does.
    let driver = |size| {
        move |host: u32| {
            let driver = (group(GroupKind::Driver, "580"), size);
            vec![cluster(), rack(host), driver]
        }
    };
    assert_eq!(kind_of(&driver(60), 10), Some(GroupKind::Cluster));
    assert_eq!(kind_of(&driver(10), 10), Some(GroupKind::Driver));
}

#[test]
fn groups_are_bounded() {
    let mut incidents = Incidents::default();
    for name in 0..GROUPS_MAX as u64 + 10 {
        let groups = [(group(GroupKind::Switch, &name.to_string()), 8)];
        assert_eq!(
            incidents.record_failure(TimeMs(name), HostId(1), &groups),
            None
        );
    }
}

/// A generator of its own: the same numbers on every machine.
fn draw(seed: &mut u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// For any proposals, soft evidence keeps no more out than its rails allow, and never the last host.
#[test]
fn no_mix_of_proposals_exceeds_a_rail() {
    for start in 0..200 {
        let mut seed = start;
        let hosts = 1 + draw(&mut seed) as u32 % 200;
        let mut rails = Rails::default();
        let mut view = PoolView {
            gpus: hosts * 8,
            hosts,
            hosts_in_service: hosts,
            ..PoolView::default()
        };
        let mut blocked = std::collections::BTreeMap::new();
        let mut now = 0;
        for _ in 0..400 {
            now += draw(&mut seed) % (10 * MINUTE_MS);
            // Components blocked for a while come back.
            blocked.retain(|_, at| now - *at < 12 * HOUR_MS);
            let host = draw(&mut seed) as u32 % hosts;
            view.gpus_blocked_soft = blocked.len() as u32 * 8;
            view.hosts_in_service = hosts - blocked.len() as u32;
            if blocked.contains_key(&host) {
                continue;
            }
            let mut proposal = soft(host, 8, now);
            if draw(&mut seed).is_multiple_of(2) {
                proposal.job = Some(JobId(draw(&mut seed) % 20));
                proposal.tenant = Some(["ann", "bob", "eve"][draw(&mut seed) as usize % 3]);
                proposal.users = 1 + draw(&mut seed) as u32 % 3;
            }
            if rails.admit(&proposal, &view) == Verdict::Allowed {
                blocked.insert(host, now);
            }
            let in_an_hour = blocked.values().filter(|at| now - **at <= HOUR_MS).count() as u32;
            let context = format!(
                "start {start}: {in_an_hour} of {hosts} hosts, {} in all",
                blocked.len()
            );
            assert!(
                in_an_hour <= 2 || in_an_hour * 1_000 <= hosts * 50,
                "{context}"
            );
            assert!(blocked.len() < hosts as usize || hosts == 0, "{context}");
        }
    }
}
