//! Arrays: many tasks of one job, a few at a time.

use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{Cluster, Shape, only_attempt, shell, submit};

/// Tasks of the array.
const TASKS: u32 = 200;
/// Maximum number of them at a time.
const AT_ONCE: u32 = 4;

/// Each task creates a file with its index as the name, appends the number of such files, and removes its
/// own at the end.
const COUNTS: &str = "cd FOLDER; : > now/$MUSTER_TASK_INDEX; ls now | wc -l >> counts; \
     echo $MUSTER_TASK_INDEX >> indexes; sleep 0.1; rm now/$MUSTER_TASK_INDEX";

/// The numbers that tasks have written to a file, one per line.
fn numbers(cluster: &Cluster, name: &str) -> Vec<u32> {
    let text = std::fs::read_to_string(cluster.folder.join(name)).unwrap();
    text.lines()
        .map(|line| line.trim().parse().unwrap())
        .collect()
}

/// Tasks of the array with long texts.
const LONG_TASKS: u32 = 30;
/// Bytes of each variable of such a task: the longest that Linux accepts.
const VARIABLE_BYTES: usize = 100 << 10;
/// Variables of such a task: together with the others they are below the total that Linux accepts.
const VARIABLES: usize = 8;

async fn submit_array(cluster: &Cluster) -> JobId {
    std::fs::create_dir(cluster.folder.join("now")).unwrap();
    let script = COUNTS.replace("FOLDER", cluster.folder.to_str().unwrap());
    let mut spec = shell(&script);
    spec.groups[0].count = Some(TASKS);
    spec.lifecycle = Some(v1::Lifecycle {
        tasks_at_once_max: Some(AT_ONCE),
        ..v1::Lifecycle::default()
    });
    submit(&cluster.client().await, spec).await
}

#[tokio::test]
async fn an_array_runs_every_index_once_and_respects_its_limit_of_running_tasks() {
    let cluster = Cluster::start(Shape {
        replicas: 1,
        ..Shape::default()
    })
    .await;
    let job = submit_array(&cluster).await;
    let ended = cluster.client().await.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded, "{ended:?}");
    let counts = numbers(&cluster, "counts");
    assert_eq!(counts.len(), TASKS as usize);
    let most = counts.iter().max().unwrap();
    assert_eq!(*most, AT_ONCE, "{counts:?}");
    let mut indexes = numbers(&cluster, "indexes");
    indexes.sort_unstable();
    assert_eq!(indexes, (0..TASKS).collect::<Vec<u32>>());
}

/// The desired state of these tasks together is longer than the largest allowed client message.
#[tokio::test]
async fn tasks_with_long_environments_run_beside_each_other_and_beside_others() {
    let cluster = Cluster::start(Shape {
        workers: 1,
        ..Shape::default()
    })
    .await;
    let client = cluster.client().await;
    let bystander = submit(&client, shell("sleep 87654.0625")).await;
    only_attempt(&client, bystander).await;
    let mut spec = shell("test ${#LONG_7} -eq 102400");
    let group = &mut spec.groups[0];
    group.count = Some(LONG_TASKS);
    for number in 0..VARIABLES {
        let text = "x".repeat(VARIABLE_BYTES);
        group.environment.insert(format!("LONG_{number}"), text);
    }
    let job = submit(&client, spec).await;
    let ended = client.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded, "{ended:?}");
    let attempt = only_attempt(&client, bystander).await;
    assert_eq!(attempt.number, 1, "{attempt:?}");
}
