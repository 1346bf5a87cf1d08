//! Task interface through the whole product: `muster task` inside real tasks.

use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{Cluster, Shape, eventually, muster, muster_binary, printed, shell};
use serde_json::Value;

const SMALL: Shape = Shape {
    replicas: 1,
    workers: 1,
    gpus: 1,
};

/// A task's script, in which `m` is the program under test.
fn script(text: &str) -> v1::JobSpec {
    let program = muster_binary();
    let mut spec = shell(&format!(
        "m() {{ '{}' task \"$@\"; }}; {text}",
        program.display()
    ));
    spec.stop_grace_ms = Some(60_000);
    spec
}

/// `muster job get`, sent to every replica until one check holds for all their answers.
async fn seen(cluster: &Cluster, job: JobId, holds: impl Fn(&Value) -> bool) -> Value {
    let job = job.to_string();
    eventually("the job is shown like this", async || {
        let answer = cluster
            .muster(&["job", "get", &job, "-o", "json"])
            .await
            .json();
        holds(&answer["unit_list"][0]).then_some(answer)
    })
    .await
}

#[tokio::test]
async fn progress_and_checkpoints_reported_from_a_tasks_shell_are_shown() {
    let cluster = Cluster::start(SMALL).await;
    let client = cluster.client().await;
    let text = "m progress 4 && m checkpoint begin 5 && sleep 0.2 && m checkpoint commit 5 --digest \
        sha256:2c26 && m env | grep ^MUSTER_EPOCH; m checkpoint commit 5 || echo refused $?; sleep 1000";
    let job = client.submit_job(script(text)).await.unwrap().job;
    let shown = seen(&cluster, job, |unit| {
        let saved = &unit["checkpoints"][0];
        let task = &unit["attempt"]["tasks"][0];
        saved["step"] == 5 && task["progress_step"] == 4
    })
    .await;
    let unit = &shown["unit_list"][0];
    let saved = &unit["checkpoints"][0];
    assert!(saved["save_ms"].as_u64().unwrap() >= 200, "{saved}");
    assert!(saved["path"].as_str().unwrap().ends_with("/step_5"));
    assert_eq!(saved["digest"], "sha256:2c26");
    let epoch = &unit["attempt"]["epoch"];
    // The first attempt receives what the leader would send to the next one.
    let interval_ms = unit["checkpoint_interval_ms"].as_u64().unwrap();
    let interval_s = interval_ms.div_ceil(1_000);
    let lines = printed(&client, job, 3).await;
    assert_eq!(
        lines,
        [
            format!("save again after {interval_s} seconds"),
            format!("MUSTER_EPOCH={epoch}"),
            "refused 1".to_owned()
        ]
    );
}

#[tokio::test]
async fn later_attempts_use_the_checkpoint_before_an_unreadable_one() {
    let cluster = Cluster::start(SMALL).await;
    let client = cluster.client().await;
    let text = "case $MUSTER_ATTEMPT in \
        1) m checkpoint commit 10 && m checkpoint commit 20 && exit 75;; \
        2) echo $MUSTER_CKPT_STEP; m checkpoint invalidate $MUSTER_CKPT_STEP --reason torn && exit 75;; \
        *) echo $MUSTER_CKPT_STEP;; esac";
    let job = client.submit_job(script(text)).await.unwrap().job;
    let ended = client.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded, "{ended:?}");
    let unit = &ended.units[0];
    let damaged: Vec<_> = unit
        .checkpoints
        .iter()
        .map(|it| (it.step, it.damaged.as_deref()))
        .collect();
    assert_eq!(damaged, [(10, None), (20, Some("torn"))]);
    assert_eq!(printed(&client, job, 1).await, ["10"]);
}

#[tokio::test]
async fn a_warned_task_saves_and_ends_long_before_the_end_of_its_grace() {
    let cluster = Cluster::start(SMALL).await;
    let client = cluster.client().await;
    // The watching process saves; SIGTERM follows. The job names a signal, so it comes no earlier.
    let text = "trap 'echo terminated; exit 75' TERM; trap '' USR1; (m watch -o name && m checkpoint commit \
        7) & echo up; while :; do sleep 0.05; done";
    let mut spec = script(text);
    spec.lifecycle.get_or_insert_default().warning = Some(v1::StopWarning {
        signal: 10,
        to_all: true,
        lead_ms: None,
    });
    let job = client.submit_job(spec).await.unwrap().job;
    printed(&client, job, 1).await;
    client.cancel_job(job, "ada", "done with it").await.unwrap();
    let ended = client.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Cancelled);
    assert_eq!(ended.units[0].checkpoints[0].step, 7);
    assert_eq!(
        printed(&client, job, 3).await,
        ["up", "cancel", "terminated"]
    );
}

#[tokio::test]
async fn the_reason_of_a_failure_is_the_decisive_output_line() {
    let cluster = Cluster::start(SMALL).await;
    let client = cluster.client().await;
    let text = "echo 'step 1'; echo \"KeyError: 'weights'\" >&2; echo bye >&2; exit 1";
    let job = client.submit_job(script(text)).await.unwrap().job;
    let ended = client.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Failed);
    assert_eq!(
        ended.job.finish_reason,
        "exit code 1 of task 0: KeyError: 'weights'"
    );
    let id = job.to_string();
    let events = cluster.muster(&["job", "events", &id]).await.ok();
    assert!(
        events.contains("exit code 1: KeyError: 'weights'"),
        "{events}"
    );
    let explained = cluster.muster(&["job", "explain", &id]).await;
    assert!(
        explained.stdout.contains("KeyError: 'weights'"),
        "{explained:?}"
    );
}

#[tokio::test]
async fn task_commands_outside_of_a_task_report_an_error() {
    for args in [
        &["task", "progress", "3"][..],
        &["task", "checkpoint", "begin", "3"],
        &["task", "watch"],
        &["task", "env"],
    ] {
        let run = muster_tests::Run::of(muster(args), "").await;
        assert_eq!(run.code, 1, "{run:?}");
        assert!(
            run.stderr.contains("this works inside a task only"),
            "{run:?}"
        );
    }
}
