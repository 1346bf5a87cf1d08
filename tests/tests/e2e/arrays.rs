//! Arrays: many tasks of one job, a few at a time.

use muster_core::ids::JobId;
use muster_proto::v1;
use muster_tests::{Cluster, Shape, shell, submit};

/// Tasks of the array.
const TASKS: u32 = 200;
/// So many of them at a time.
const AT_ONCE: u32 = 4;

/// A task is there from its first words to its last: it makes a file named like itself, tells how many such files there are, and
/// takes its own away again.
const COUNTS: &str = "cd FOLDER; : > now/$MUSTER_TASK_INDEX; ls now | wc -l >> counts; \
     echo $MUSTER_TASK_INDEX >> indexes; sleep 0.1; rm now/$MUSTER_TASK_INDEX";

/// The numbers that tasks have written into a file, a line each.
fn numbers(cluster: &Cluster, name: &str) -> Vec<u32> {
    let text = std::fs::read_to_string(cluster.folder.join(name)).unwrap();
    text.lines()
        .map(|line| line.trim().parse().unwrap())
        .collect()
}

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
async fn an_array_runs_every_index_once_and_never_more_at_once_than_it_says() {
    let cluster = Cluster::start(Shape::default()).await;
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
