//! Failing GPU: the resulting blocks, and its return after a successful check.

use muster_health::rules::RuleSet;
use muster_proto::v1;
use muster_tests::{Cluster, Shape, eventually, only_attempt, shell, submit, with_gpus};
use serde_json::json;

const TWO_WORKERS: Shape = Shape {
    replicas: 1,
    workers: 2,
    gpus: 2,
};

/// Seconds of the first wait and of the first probation.
const WAIT_S: u64 = 3;

/// Sets rules with spans short enough for a test, once all replicas are known to read them.
async fn set_short_waits(cluster: &Cluster) {
    let short = RuleSet::shipped_text_with(WAIT_S, WAIT_S);
    let file = cluster.write("rules.toml", &short);
    let file = file.to_str().unwrap();
    let dry = cluster
        .muster(&["health", "apply", file, "--dry-run"])
        .await
        .ok();
    assert!(dry.contains("nothing was changed"), "{dry}");
    eventually("the rules are set", async || {
        let run = cluster.muster(&["health", "apply", file]).await;
        (run.code == 0).then_some(())
    })
    .await;
}

/// Waits until a component reaches a state, according to the history shown to users.
async fn eventually_has(cluster: &Cluster, component: &str, event: &str) -> String {
    eventually(event, async || {
        let history = cluster.muster(&["health", "history", component]).await.ok();
        history.contains(event).then_some(history)
    })
    .await
}

#[tokio::test]
async fn a_gpu_with_an_xid_is_blocked_repaired_checked_and_returned_to_service() {
    let cluster = Cluster::start(TWO_WORKERS).await;
    let client = cluster.client().await;
    set_short_waits(&cluster).await;
    let mut spec = with_gpus(shell("sleep 1000"), 1);
    spec.retry = Some(v1::RetryPolicy {
        retries_max: 0,
        ..v1::RetryPolicy::default()
    });
    let job = submit(&client, spec).await;
    let before = only_attempt(&client, job).await;
    let (host, gpu) = (&before.tasks[0].host, &before.tasks[0].gpus[0]);
    // A component that never failed has an empty history, and an unknown one has none.
    for component in [host, gpu, &format!("{host}:0")] {
        let args = ["health", "history", component, "-o", "json"];
        let history = cluster.muster(&args).await.json();
        assert_eq!(history["changes"], json!([]), "{component}: {history}");
    }
    for component in ["nowhere", "nowhere:0", &format!("{host}:77")] {
        let run = cluster.muster(&["health", "history", component]).await;
        assert_eq!((run.code, &*run.stdout), (1, ""), "{component}: {run:?}");
    }
    let fault = v1::GpuFault {
        signal: "xid-48".to_owned(),
        detail: "injected by a test".to_owned(),
    };
    { client.inject_gpu_fault(host, gpu, Some(fault)) }
        .await
        .unwrap();
    // The task continues elsewhere, and is not charged.
    let moved = eventually("another attempt", async || {
        let known = client.get_job(job, 1, v1::Consistency::Linearizable).await;
        let unit = known.ok()?.units.into_iter().next()?;
        let attempt = unit.attempt?;
        (attempt.epoch != before.epoch).then_some((unit.failures, attempt))
    })
    .await;
    assert_eq!(moved.0, 0);
    assert_ne!(&moved.1.tasks[0].gpus[0], gpu);
    let history = eventually_has(&cluster, gpu, "block").await;
    assert!(history.contains("xid"), "{history}");
    // Without a healthy reading: it is reset, checked when its wait is over, and on probation.
    eventually_has(&cluster, gpu, "repair_done").await;
    eventually_has(&cluster, gpu, "check_passed").await;
    let history = eventually_has(&cluster, gpu, "probation_passed").await;
    let order = [
        "block",
        "repair_began",
        "repair_done",
        "check_passed",
        "probation_passed",
    ];
    let places: Vec<_> = order.iter().map(|event| history.find(event)).collect();
    assert!(places.is_sorted(), "{history}");
    let listed = cluster.muster(&["health", "list"]).await.ok();
    assert!(!listed.contains(gpu.as_str()), "{listed}");
}

#[tokio::test]
async fn an_injected_fault_is_handled_like_a_real_one() {
    let cluster = Cluster::start(TWO_WORKERS).await;
    let client = cluster.client().await;
    set_short_waits(&cluster).await;
    let (_, gpus) = client
        .list_gpus(v1::ListGpusRequest::default())
        .await
        .unwrap();
    let (first, other) = (&gpus[0], gpus.iter().find(|gpu| gpu.host != gpus[0].host));
    let (first, other) = (first.clone(), other.unwrap().clone());
    let inject = async |args: &[&str]| {
        let args: Vec<&str> = ["chaos", "inject"].iter().chain(args).copied().collect();
        cluster.muster(&args).await
    };
    let inject_well = async |args: &[&str]| {
        let run = inject(args).await;
        assert_eq!(run.code, 0, "{run:?}");
    };
    // By location: a reading that blocks the GPU at once and ends when it is read differently.
    let place = format!("{}:{}", first.host, first.index);
    let lost = ["reading", &place, "gpu_reset_required", "required=1"];
    inject_well(&lost).await;
    eventually_has(&cluster, &first.uuid, "gpu_reset_required").await;
    // A line of the kernel's log, a check of the site, and a signal, on the other host.
    let full = "EXT4-fs (sda1): Remounting filesystem read-only";
    inject_well(&["line", &other.host, full]).await;
    let history = eventually_has(&cluster, &other.host, "block").await;
    assert!(history.contains("fs_readonly"), "{history}");
    inject_well(&["check", &first.host, "scratch", "1", "WARNING - slow"]).await;
    let history = eventually_has(&cluster, &first.host, "suspect").await;
    assert!(history.contains("check:scratch"), "{history}");
    inject_well(&["signal", &other.uuid, "xid-48"]).await;
    eventually_has(&cluster, &other.uuid, "xid").await;
    inject_well(&["heal", &other.uuid]).await;
    // A typing error is reported, and nothing happens.
    let unknown = inject(&["signal", &format!("{}:77", first.host), "xid-48"]).await;
    assert_eq!(unknown.code, 64, "{unknown:?}");
    assert!(unknown.stderr.contains("muster gpu list"), "{unknown:?}");
    let unknown = inject(&["line", "nowhere", "text"]).await;
    assert!(unknown.stderr.contains("nowhere"), "{unknown:?}");
    let wrong = inject(&["reading", &place, "gpu_reset_required", "required"]).await;
    assert_eq!(wrong.code, 64, "{wrong:?}");
    for (rule, figure, message) in [
        ("gpu_reset", "required=1", "unknown rule `gpu_reset`"),
        ("gpu_reset_required", "needed=1", "it has required"),
        (
            "fs_readonly",
            "readonly=1",
            "applies to a host, and this is a gpu",
        ),
    ] {
        let wrong = inject(&["reading", &place, rule, figure]).await;
        assert_ne!(wrong.code, 0, "{wrong:?}");
        assert!(wrong.stderr.contains(message), "{wrong:?}");
    }
    // A finding about a rack is reported by its hosts.
    inject_well(&["reading", &first.host, "power_brake", "braked=1"]).await;
    let wrong = inject(&["line", &first.host, ""]).await;
    assert!(wrong.stderr.contains("TEXT_BYTES_MAX"), "{wrong:?}");
}

/// Sets rules, and waits until a leader reports them as active.
async fn set_rules(cluster: &Cluster, args: &[&str], expected: &str) {
    let applied = cluster.muster(args).await;
    assert_eq!(applied.code, 0, "{applied:?}");
    assert_eq!(cluster.muster(&["health", "rules"]).await.ok(), expected);
}

#[tokio::test]
async fn shipped_rules_are_replicated_and_custom_ones_survive_failovers() {
    let mut cluster = Cluster::start(Shape {
        replicas: 3,
        ..TWO_WORKERS
    })
    .await;
    let client = cluster.client().await;
    let revision = eventually("the leader has put its rules into the log", async || {
        let health = client.health(v1::Consistency::Linearizable).await.ok()?;
        assert_eq!(health.rules, RuleSet::SHIPPED_TEXT);
        (health.rules_revision > 0).then_some(health.rules_revision)
    })
    .await;

    // Without code tables, those of the leader's build are added.
    let (own, codes) = RuleSet::SHIPPED_TEXT.split_once("[codes]\n").unwrap();
    let own = own.replacen("first_wait_s = 900", "first_wait_s = 901", 1);
    let file = cluster.write("own.toml", &own);
    let whole = format!("{own}\n\n[codes]\n{codes}");
    let file = file.to_str().unwrap();
    set_rules(&cluster, &["health", "apply", file], &whole).await;
    let leader = cluster.leader(&client).await;
    cluster.replicas[leader].kill();
    let outlived = eventually("another leader", async || {
        let health = client.health(v1::Consistency::Linearizable).await.ok()?;
        // It would have proposed its own file at once, before it knew of a job.
        client.submit_job(shell("exit 0")).await.ok()?;
        Some(health)
    })
    .await;
    assert_eq!(outlived.rules, whole);
    assert!(outlived.rules_revision > revision);
    let shipped = ["health", "apply", "--shipped"];
    set_rules(&cluster, &shipped, RuleSet::SHIPPED_TEXT).await;
}

#[tokio::test]
async fn an_invalid_rule_file_is_refused_at_its_line_and_changes_nothing() {
    let cluster = Cluster::start(TWO_WORKERS).await;
    let file = cluster.write("rules.toml", "format = 1\n\n[odd]\ncomponent = \"board\"\n");
    let args = ["health", "apply", file.to_str().unwrap()];
    let refused = cluster.muster(&args).await;
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.stderr.contains("line 4") && refused.stderr.contains("gpu, nic, host"));
    let rules = cluster.muster(&["health", "rules"]).await.ok();
    assert_eq!(rules, RuleSet::SHIPPED_TEXT);
    let breaker = cluster.muster(&["health", "reset-breaker", "H100"]).await;
    assert_eq!(breaker.code, 1, "{breaker:?}");
    assert!(breaker.stderr.contains("is not tripped"), "{breaker:?}");
}

#[tokio::test]
async fn a_ticket_is_opened_once_for_hardware_that_only_a_person_can_return() {
    let cluster = Cluster::start(TWO_WORKERS).await;
    let client = cluster.client().await;
    set_short_waits(&cluster).await;
    let (_, gpus) = client
        .list_gpus(v1::ListGpusRequest::default())
        .await
        .unwrap();
    let gpu = &gpus[0].uuid;
    let wrong = ["chaos", "inject", "reading", gpu, "miscompare"];
    let wrong = [&wrong[..], &["miscompares=3"]].concat();
    assert_eq!(cluster.muster(&wrong).await.code, 0);
    eventually_has(&cluster, gpu, "condemn").await;
    let tickets = cluster.write("tickets", "");
    let seen = cluster.write("seen", "");
    let script = format!("echo $MUSTER_TICKET $MUSTER_PHASE >> {}", tickets.display());
    let args = [
        "health",
        "tickets",
        "--once",
        "--seen",
        seen.to_str().unwrap(),
    ];
    let open = async |script: &str| {
        let args = [&args[..], &["--", "sh", "-c", script]].concat();
        cluster.muster(&args).await
    };
    let failed = open("exit 7").await;
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.stderr.contains("no ticket opened"), "{failed:?}");
    for _ in 0..2 {
        let opened = open(&script).await;
        assert_eq!(opened.code, 0, "{opened:?}");
        let tickets = std::fs::read_to_string(&tickets).unwrap();
        let lines: Vec<&str> = tickets.lines().collect();
        let [line] = lines[..] else {
            unreachable!("one ticket: {tickets}")
        };
        assert!(
            line.starts_with(gpu.as_str()) && line.ends_with(" rma"),
            "{tickets}"
        );
    }
    let unblocked = cluster.muster(&["unblock-gpu", gpu]).await;
    assert_eq!(unblocked.code, 0, "{unblocked:?}");
    assert_eq!(open(&script).await.code, 0);
    assert_eq!(
        std::fs::read_to_string(&seen).unwrap(),
        "",
        "the case is over"
    );
}
