//! Command line as a newcomer uses it: wrong arguments, no cluster, and output for programs.

use std::collections::BTreeSet;

use muster_ports::ReservedAddresses;
use muster_tests::{Cluster, Run, Shape, eventually, muster};
use serde_json::Value;

async fn run(args: &[&str]) -> Run {
    Run::of(muster(args), "").await
}

#[tokio::test]
async fn wrong_arguments_are_usage_errors_with_a_hint() {
    let cases: [(&[&str], &str); 12] = [
        (&["jobs"], "a similar subcommand exists: 'job'"),
        (&["job", "sumbit"], "a similar subcommand exists: 'submit'"),
        (&["job", "get"], "<JOB>"),
        (&["job", "submit"], "muster job submit"),
        (&["job", "wait", "first"], "tip: write a whole number"),
        (
            &["job", "submit", "--gpus", "-1", "--", "x"],
            "-1 is not in 0..=",
        ),
        (
            &["job", "submit", "python", "a.py"],
            "comes after `--`: muster job submit -- python ...",
        ),
        (
            &["job", "submit", "--partition-grace", "1s", "--", "x"],
            "--partition-grace: must be at least 5000 (PARTITION_GRACE_MS_MIN), in ms",
        ),
        (&["job", "list", "--limit", "0"], "tip: write 1 or more"),
        (&["dev", "--replicas", "0"], "tip: write 1 or more"),
        (&["host", "block", "node01"], "--reason <TEXT>"),
        (
            &["job", "list", "-o", "xml"],
            "[possible values: table, wide, json",
        ),
    ];
    for (args, expected) in cases {
        let run = run(args).await;
        assert_eq!((run.code, &*run.stdout), (64, ""), "{args:?} {run:?}");
        assert!(run.stderr.contains(expected), "{args:?}\n{}", run.stderr);
    }
}

#[tokio::test]
async fn without_a_cluster_the_error_names_the_address_and_the_remedy() {
    let reserved = ReservedAddresses::draw(1).unwrap();
    let nowhere = reserved.addresses()[0].to_string();
    let run = run(&["job", "list", "--address", &nowhere]).await;
    run.fails(
        1,
        &format!(
            "error: cannot list jobs: no scheduler replica is reachable ({nowhere}: Connection refused \
             (os error 111))\n help: is the cluster running? `muster dev` starts one here; give the \
             replicas of another one with --address host:port[,host:port...] or MUSTER_ADDR\n"
        ),
    );
}

/// The names of an object's fields.
fn fields(value: &Value) -> BTreeSet<&str> {
    let object = value.as_object().unwrap_or_else(|| panic!("{value}"));
    object.keys().map(String::as_str).collect()
}

/// Asserts that an object has all fields of a list in `docs/cli-json.md`; more may be added there.
fn has(value: &Value, names: &str) {
    let expected: BTreeSet<&str> = names.split_whitespace().collect();
    let found = fields(value);
    assert!(
        found.is_superset(&expected),
        "without {:?}: {value:#}",
        expected.difference(&found).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn json_has_the_documented_fields() {
    let cluster = Cluster::start(Shape::default()).await;
    let json = async |args: &str| {
        let args: Vec<&str> = ["-o", "json"].into_iter().chain(args.split(' ')).collect();
        cluster.muster(&args).await.json()
    };
    let submitted = json("job submit --gpus 1 --wait -- true").await;
    has(&submitted, "job name revision repeated dry_run");
    let job = submitted["job"].as_u64().unwrap();

    let listed = json("job list").await;
    has(&listed, "revision jobs");
    let row = "id name user queue priority gang phase tasks gpus_requested gpus_held units submitted_at \
               finished_at finish_reason cancel kept_permille ledger";
    has(&listed["jobs"][0], row);
    has(
        &listed["jobs"][0]["units"],
        "waiting placed running stopping succeeded failed cancelled",
    );
    assert_eq!(listed["jobs"][0]["phase"], "succeeded");

    let detail = json(&format!("job get {job}")).await;
    has(&detail, row);
    has(&detail, "revision spec unit_list more_units");
    let unit = &detail["unit_list"][0];
    has(
        unit,
        "index phase attempts failures local_retries without_progress without_progress_max checkpoint_interval_ms \
         restart_reason not_before attempt past_attempts checkpoints",
    );
    let past = "epoch number placed_at running_at ended_at detail exit hosts";
    has(&unit["past_attempts"][0], past);
    let failed = cluster.muster(&["job", "submit", "-o", "name", "--wait", "--", "false"]);
    let failed = json(&format!("job get {}", failed.await.stdout.trim())).await;
    let exit = &failed["unit_list"][0]["past_attempts"][0]["exit"];
    has(exit, "code signal out_of_memory lease_expired start_error");
    assert_eq!(exit["code"], 1);

    // What `job get` prints as a specification can be submitted again.
    let spec = detail["spec"].to_string();
    let args = ["job", "submit", "-f", "-", "-o", "name"];
    let again = cluster.muster_reading(&args, &spec).await;
    assert!(again.ok().trim().parse::<u64>().unwrap() > job);

    let explained = json(&format!("job explain {job}")).await;
    has(
        &explained,
        "revision phase summary blocker remedy unit units_waiting jobs_ahead host_classes",
    );
    let hosts = json("host list").await;
    has(
        &hosts["hosts"][0],
        "name id address state health health_since block gpus gpu_models tasks cpus cpus_used memory_mib \
         memory_mib_used labels registered_at worker_id incarnation boot_id",
    );
    let gpus = json("gpu list").await;
    assert_eq!(gpus["gpus"].as_array().unwrap().len(), 16);
    has(
        &gpus["gpus"][0],
        "uuid host index model memory_mib state fault health_since block holder",
    );
    has(
        &json("queue list").await["queues"][0],
        "name live_jobs live_jobs_max",
    );
    let status = json("cluster status").await;
    has(
        &status,
        "cluster_id version revision time answered_by leader leader_address term leadership_epoch \
         leader_since replicas jobs hosts gpus",
    );
    has(
        &status["replicas"][0],
        "id role address matched_index lag_entries last_heartbeat_age_ms",
    );
    let job = job.to_string();
    let events = cluster.muster(&["job", "events", &job, "-o", "json"]).await;
    for line in events.ok().lines() {
        let event = serde_json::from_str(line).unwrap();
        has(&event, "revision time kind job text detail");
    }
}

#[tokio::test]
async fn exit_codes_reflect_the_outcome_of_a_job() {
    let cluster = Cluster::start(Shape::default()).await;
    let code = async |args: &[&str]| cluster.muster(args).await.code;
    assert_eq!(code(&["job", "submit", "--wait", "--", "true"]).await, 0);
    assert_eq!(code(&["job", "submit", "--wait", "--", "false"]).await, 3);
    let unplaceable = [
        "job",
        "submit",
        "--gpus",
        "64",
        "--wait",
        "--timeout",
        "1s",
        "--",
        "true",
    ];
    assert_eq!(code(&unplaceable).await, 2);
    let slow = [
        "job",
        "submit",
        "--wait",
        "--timeout",
        "2s",
        "--",
        "sleep",
        "1000",
    ];
    assert_eq!(code(&slow).await, 124);
    let sleeper = cluster.muster(&["job", "submit", "-o", "name", "--", "sleep", "1000"]);
    let sleeper = sleeper.await.ok();
    assert_eq!(code(&["job", "cancel", sleeper.trim()]).await, 0);
    assert_eq!(code(&["job", "wait", sleeper.trim()]).await, 4);
    // A missing program: the attempt reports it, and is retried a few times.
    let args = ["job", "submit", "-o", "name", "--", "no-such-program"];
    let absent = cluster.muster(&args).await.ok();
    let start_error = eventually("the first attempt has ended", async || {
        let args = ["job", "get", absent.trim(), "-o", "json"];
        let detail = cluster.muster(&args).await.json();
        let exit = &detail["unit_list"][0]["past_attempts"][0]["exit"];
        exit["start_error"].as_str().map(str::to_owned)
    })
    .await;
    assert!(
        start_error.contains("`no-such-program` failed: No such file"),
        "{start_error}"
    );
}

#[tokio::test]
async fn the_suggested_remedy_for_a_waiting_job_lets_it_run() {
    let cluster = Cluster::start(Shape::default()).await;
    let args = ["block-host", "node01", "--reason", "fan"];
    assert_eq!(cluster.muster(&args).await.code, 0);
    let args = ["block-host", "node02", "--reason", "fan"];
    let last = cluster.muster(&args).await;
    assert_eq!(last.code, 1, "{last:?}");
    assert!(last.stderr.contains("--force"), "{last:?}");
    let forced = [&args[..], &["--force"]].concat();
    let forced = cluster.muster(&forced).await;
    assert!(
        forced
            .stdout
            .contains("warning: this is the last host of pool"),
        "{forced:?}"
    );
    assert_eq!(forced.code, 0);
    let args = ["job", "submit", "--gpus", "1", "-o", "name", "--", "true"];
    let job = cluster.muster(&args).await.ok().trim().to_owned();
    let explained = cluster
        .muster(&["job", "explain", &job, "-o", "json"])
        .await
        .json();
    assert_eq!(explained["blocker"]["kind"], "resources", "{explained:#}");
    assert_eq!(explained["remedy"]["kind"], "unblock", "{explained:#}");
    let target = explained["remedy"]["targets"][0].as_str().unwrap();
    let host = target.strip_prefix("host ").unwrap();

    let args = ["unblock-host", host];
    assert_eq!(cluster.muster(&args).await.code, 0);
    let args = ["job", "wait", &job, "--timeout", "60s"];
    assert_eq!(cluster.muster(&args).await.code, 0);
}

#[tokio::test]
async fn missing_hosts_are_named_and_the_existing_ones_are_listed() {
    let cluster = Cluster::start(Shape::default()).await;
    let message =
        "error: host `node03` does not exist\n help: `muster host list` shows the hosts\n";
    for noun in ["host", "gpu"] {
        let args = [noun, "list", "node[02-03]", "-o", "json"];
        let run = cluster.muster(&args).await;
        assert_eq!((run.code, run.stderr.as_str()), (1, message), "{run:?}");
        let listed: Value = serde_json::from_str(&run.stdout).unwrap();
        let rows = listed[format!("{noun}s")].as_array().unwrap();
        assert!(rows.iter().all(|row| row.to_string().contains("node02")));
        assert!(!rows.is_empty());
    }
    // More than the cluster has, so it waits.
    let args = ["job", "submit", "--gpus", "9", "-o", "name", "--", "true"];
    let job = cluster.muster(&args).await.ok().trim().to_owned();
    let logs = async |more: &[&str]| {
        let args: Vec<&str> = ["job", "logs", &job].iter().chain(more).copied().collect();
        let run = cluster.muster(&args).await;
        assert_eq!(run.code, 1, "{run:?}");
        run.stderr
    };
    assert!(logs(&[]).await.contains("it has not started yet"));
    let no_task = logs(&["--task", "7"]).await;
    assert!(
        no_task.contains("has no task 7: its last one is 0"),
        "{no_task}"
    );
    let no_attempt = logs(&["--attempt", "2"]).await;
    assert!(no_attempt.contains("has no attempt 2"), "{no_attempt}");
}
