//! Invalid input gets a clear error that names the field and the rule, and does not change the cluster.

use muster_client::{Client, ClientError, Refusal};
use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{Cluster, Shape, shell};

/// A small cluster.
async fn cluster() -> (Cluster, Client) {
    let cluster = Cluster::start(Shape {
        replicas: 1,
        workers: 1,
        gpus: 2,
    })
    .await;
    let client = cluster.client().await;
    (cluster, client)
}

/// The refusal of a submission.
async fn refused(client: &Client, spec: v1::JobSpec) -> Refusal {
    let error = client.submit_job(spec).await.unwrap_err();
    error.refusal().unwrap_or_else(|| panic!("{error}")).clone()
}

fn violations(refusal: &Refusal) -> Vec<String> {
    assert_eq!(refusal.reason, "INVALID_SPEC", "{refusal:?}");
    let violations = refusal.violations.iter();
    violations.map(ToString::to_string).collect()
}

/// Asserts that the cluster holds exactly these jobs, and runs another one to its end.
async fn still_works(client: &Client, jobs: &[JobId]) {
    let (_, listed) = client
        .list_jobs(v1::ListJobsRequest::default(), 1_000)
        .await
        .unwrap();
    let mut listed: Vec<JobId> = listed.iter().map(|job| JobId(job.id)).collect();
    listed.sort();
    assert_eq!(listed, jobs);
    let submitted = client.submit_job(shell("exit 0")).await.unwrap();
    let ended = client.wait_job(submitted.job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded);
}

#[tokio::test]
async fn errors_in_job_files_name_line_and_field() {
    let (cluster, client) = cluster().await;
    let kept = client.submit_job(shell("exit 0")).await.unwrap().job;
    let help = " help: nothing was submitted; docs/job-file.md describes the format\n";
    let cases = [
        (
            "job.yaml",
            "name: a\ncomand: [x]\n",
            "job.yaml:2:1: comand: unknown field",
        ),
        (
            "job.yaml",
            "name: a\ncommand: [x\n",
            "job.yaml:2:10: command: unclosed bracket",
        ),
        (
            "job.yaml",
            "name: a\ncommand: [x]\ntasks: 0\n",
            "job.yaml:3:8: tasks: must be at least 1\n",
        ),
        (
            "job.yaml",
            "name: a\ncommand: [x]\ntasks: 1000000000\n",
            "job.yaml:3:8: tasks: 1000000000 is over the limit of 1000000 (TASKS_PER_JOB_MAX)\n",
        ),
        (
            "job.yaml",
            "name: a\ngroups:\n- {name: w, command: [x]}\n- {name: w, command: [x]}\n",
            "job.yaml:4:10: groups[1].name: `w` names two groups; names are unique within a job\n",
        ),
        (
            "job.json",
            "{\n  \"name\": \"a\",\n  \"command\": [\"x\"],\n  \"tasks\": \"many\"\n}\n",
            "job.json:4:12: tasks: must be a whole number, 0 or more",
        ),
        (
            "job.json",
            "{\n  \"name\": \"a\",\n  \"command\": [\"x\"],\n  \"resources\": {\"gpus\": 129}\n}\n",
            "job.json:4:25: resources.gpus: 129 is over the limit of 128 (GPUS_PER_TASK_MAX)\n",
        ),
    ];
    for (name, text, expected) in cases {
        drop(cluster.write(name, text));
        let run = cluster.muster(&["job", "submit", "-f", name]).await;
        assert_eq!((run.code, &*run.stdout), (64, ""), "{text}{run:?}");
        assert!(
            run.stderr.starts_with(&format!("error: {expected}")) && run.stderr.ends_with(help),
            "{text}{}\n{expected}",
            run.stderr
        );
    }
    still_works(&client, &[kept]).await;
}

#[tokio::test]
async fn specifications_over_a_limit_are_refused_with_the_limit() {
    let (cluster, client) = cluster().await;
    let kept = client.submit_job(shell("exit 0")).await.unwrap().job;
    let counted = |count| {
        let mut spec = shell("exit 0");
        spec.groups[0].count = Some(count);
        spec
    };
    let refusal = refused(&client, counted(0)).await;
    assert_eq!(
        violations(&refusal),
        ["groups[0].count: must be at least 1"]
    );
    let refusal = refused(&client, counted(1_000_000_000)).await;
    assert_eq!(
        violations(&refusal),
        ["groups: 1000000000 is over the limit of 1000000 (TASKS_PER_JOB_MAX)"]
    );

    let mut gang = counted(1_000_000);
    gang.gang = true;
    let refusal = refused(&client, gang).await;
    assert_eq!(
        violations(&refusal),
        ["groups: 1000000 is over the limit of 16384 (TASKS_PER_GANG_MAX)"]
    );

    let mut nothing = shell("exit 0");
    nothing.groups.clear();
    let refusal = refused(&client, nothing).await;
    assert_eq!(
        violations(&refusal),
        ["groups: must name at least one task group"]
    );

    let mut large = shell("exit 0");
    large.groups[0].command.push("x".repeat(10 << 20));
    let bytes = (10 << 20) + 137;
    let refusal = refused(&client, large).await;
    let [violation] = &*violations(&refusal) else {
        panic!("{refusal:?}");
    };
    assert!(
        violation.starts_with("spec: 1048") && violation.ends_with(" (SPEC_BYTES_MAX)"),
        "{violation}, about {bytes} bytes"
    );
    // Larger than a replica accepts as one message.
    let mut huge = shell("exit 0");
    huge.groups[0].command.push("x".repeat(20 << 20));
    let error = client.submit_job(huge).await.unwrap_err();
    assert!(matches!(error, ClientError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("16777216"), "{error}");

    let text = format!("name: a\ncommand: [{}]\n", "x".repeat(10 << 20));
    let run = cluster
        .muster_reading(&["job", "submit", "-f", "-"], &text)
        .await;
    assert_eq!(run.code, 64, "{run:?}");
    assert!(run.stderr.contains("(SPEC_BYTES_MAX)"), "{}", run.stderr);
    still_works(&client, &[kept]).await;
}

#[tokio::test]
async fn an_unknown_queue_is_named_with_a_hint() {
    let (cluster, client) = cluster().await;
    let mut spec = shell("exit 0");
    spec.queue = Some("nope".to_owned());
    let refusal = refused(&client, spec).await;
    assert_eq!(refusal.reason, "UNKNOWN_QUEUE");
    assert_eq!(refusal.metadata["queue"], "nope");
    let run = cluster
        .muster(&["job", "submit", "--queue", "nope", "--", "true"])
        .await;
    run.fails(
        1,
        "error: the command line: cannot submit the job: queue `nope` does not exist; \
         `muster queue list` shows those that do\n \
         help: create it with `muster queue set`\n",
    );
    // If one of several jobs is refused, none is submitted.
    let text = "name: a\ncommand: [\"true\"]\n---\nname: b\nqueue: nope\ncommand: [\"true\"]\n";
    let run = cluster
        .muster_reading(&["job", "submit", "-f", "-"], text)
        .await;
    assert_eq!((run.code, &*run.stdout), (1, ""), "{run:?}");
    assert!(
        run.stderr.contains("queue `nope` does not exist"),
        "{run:?}"
    );
    still_works(&client, &[]).await;
}

#[tokio::test]
async fn jobs_of_one_name_are_two_and_requests_of_one_id_are_one() {
    let (cluster, client) = cluster().await;
    let first = client.submit_job(shell("exit 0")).await.unwrap();
    let second = client.submit_job(shell("exit 0")).await.unwrap();
    assert_ne!(first.job, second.job);

    let id = "6f1c2f0e-0000-4000-8000-000000000001";
    let args = ["job", "submit", "--request-id", id, "-o", "json", "--"];
    let submit = async |command: &str| {
        let args: Vec<&str> = args.iter().copied().chain([command]).collect();
        cluster.muster(&args).await
    };
    let once = submit("true").await.json();
    let again = submit("true").await.json();
    assert_eq!(
        (&once["job"], once["repeated"].as_bool()),
        (&again["job"], Some(false))
    );
    assert_eq!(again["repeated"], true);
    let third = JobId(once["job"].as_u64().unwrap());

    let other = submit("false").await;
    assert_eq!(other.code, 1, "{other:?}");
    assert!(other.stderr.contains("request id"), "{}", other.stderr);
    still_works(&client, &[first.job, second.job, third]).await;
}

#[tokio::test]
async fn cancelling_an_ended_or_unknown_job_is_refused() {
    let (cluster, client) = cluster().await;
    let job = client.submit_job(shell("exit 0")).await.unwrap().job;
    client.wait_job(job).await.unwrap();

    let error = client.cancel_job(job, "ada", "late").await.unwrap_err();
    assert_eq!(error.reason(), Some("JOB_FINISHED"));
    let run = cluster.muster(&["job", "cancel", &job.to_string()]).await;
    run.fails(
        1,
        &format!(
            "error: job {job}: cannot cancel the job: job {job} has already ended: succeeded\n"
        ),
    );

    let unknown = JobId(99_999_999);
    let error = client.cancel_job(unknown, "ada", "").await.unwrap_err();
    assert_eq!(error.reason(), Some("UNKNOWN_JOB"));
    let run = cluster.muster(&["job", "cancel", "99999999"]).await;
    run.fails(
        1,
        "error: job 99999999: cannot cancel the job: job 99999999 does not exist, or ended and was \
         pruned\n help: `muster job list` shows the known jobs\n",
    );
    let after = client.get_job(job, 1, v1::Consistency::Linearizable).await;
    assert_eq!(after.unwrap().phase(), v1::JobPhase::Succeeded);
    still_works(&client, &[job]).await;
}
