//! Disaster recovery: from a backup, and from a source replica after the loss of the majority.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, lchown};
use std::path::{Path, PathBuf};

use muster_raft_store::recovery::backup::{Backup, BackupMetadata};
use muster_raft_store::{
    Config, Handle, OpenError, Peer, RebuildTarget, RecoveryError, SourceReplica,
};
use tempfile::TempDir;

use crate::group::{Cluster, Node};
use crate::support::counter::{Add, Counter};
use crate::support::{config, eventually, leads, newest_snapshot};

/// Revisions that the counter's state skips when it is carried over.
const SKIPPED: u64 = 1_000_000;
/// Id of a user and a group without rights: a replica does not run as root, and an admin does.
const NOBODY: u32 = 65_534;

fn about() -> BackupMetadata {
    BackupMetadata {
        cluster_id: "test-cluster".to_owned(),
        replica_id: 1,
        time_ms: 5,
        version: "0.1.0".to_owned(),
    }
}

fn rebuild_target(directory: &Path) -> RebuildTarget {
    RebuildTarget {
        data_dir: directory.to_owned(),
        cluster_id: "test-cluster".to_owned(),
        replica: Peer::new(9, "127.0.0.1:1"),
    }
}

/// A backup of a group that has counted to three.
async fn backup() -> Backup<Counter> {
    let cluster = Cluster::start(|_| {}).await;
    for _ in 0..3 {
        cluster.add("a", 1).await;
    }
    let leader = cluster.leader().await;
    let mut bytes = Vec::new();
    let captured = cluster.nodes[leader].handle().capture();
    captured.write_backup(&mut bytes, &about(), None).unwrap();
    Backup::read(&mut bytes.as_slice(), None).unwrap()
}

/// Data of a stopped replica, which may need a moment to release its directory.
async fn survivor(node: &Node) -> SourceReplica<Counter> {
    eventually("a free directory", async || {
        match SourceReplica::read(node.directory.path()) {
            Ok(survivor) => Some(survivor),
            Err(RecoveryError::Open(OpenError::InUse { .. })) => None,
            Err(error) => panic!("replica {} cannot be read: {error:?}", node.id),
        }
    })
    .await
}

/// Whether the test runs as root; without it the test proves nothing.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        drop(writeln!(
            std::io::stderr(),
            "skipped: only root can change the owner of files"
        ));
    }
    is_root
}

/// A folder and its content, recursively.
fn all_of(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut visited = 0;
    while let Some(path) = found.get(visited).cloned() {
        visited += 1;
        if path.is_dir() {
            let entries = fs::read_dir(path).unwrap();
            found.extend(entries.map(|entry| entry.unwrap().path()));
        }
    }
    found
}

fn give_to_nobody(folder: &Path) {
    for path in all_of(folder) {
        lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

/// Asserts that everything in a folder belongs to [`NOBODY`].
fn assert_is_nobodys(folder: &Path) {
    let about = |path: &PathBuf| fs::symlink_metadata(path).unwrap();
    let mut others = all_of(folder);
    others.retain(|path| (about(path).uid(), about(path).gid()) != (NOBODY, NOBODY));
    assert!(others.is_empty(), "{others:?}");
}

/// Names of the entries of a folder.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string();
    entries.map(|entry| name(entry).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_restored_by_root_belong_to_the_directorys_owner() {
    if !is_root() {
        return;
    }
    let backup = backup().await;
    let folder = TempDir::new().unwrap();
    let directory = folder.path();
    // Root's own entry keeps its owner.
    fs::create_dir(directory.join("lost+found")).unwrap();
    lchown(directory, Some(NOBODY), Some(NOBODY)).unwrap();
    rebuild_target(directory).restore(backup).unwrap();
    let expected = ["lock", "log", "lost+found", "snapshots"];
    assert_eq!(
        names(directory),
        BTreeSet::from(expected.map(str::to_owned))
    );
    let foreign = fs::metadata(directory.join("lost+found")).unwrap();
    assert_eq!(foreign.uid(), 0);
    fs::remove_dir(directory.join("lost+found")).unwrap();
    assert_is_nobodys(directory);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_recovery_by_root_changes_no_owner() {
    if !is_root() {
        return;
    }
    let backup = backup().await;
    let folder = TempDir::new().unwrap();
    let directory = folder.path();
    fs::create_dir(directory.join("log")).unwrap();
    lchown(directory, Some(NOBODY), Some(NOBODY)).unwrap();
    let refused = rebuild_target(directory).restore(backup);
    assert!(
        matches!(refused, Err(RecoveryError::NotEmpty { .. })),
        "{refused:?}"
    );
    assert_eq!(fs::metadata(directory.join("log")).unwrap().uid(), 0);
    assert_eq!(names(directory), BTreeSet::from(["log".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_read_and_recovered_by_root_keep_their_owner() {
    if !is_root() {
        return;
    }
    let mut cluster = Cluster::start(|_| {}).await;
    cluster.add("a", 1).await;
    cluster.converge().await;
    for node in &mut cluster.nodes {
        node.kill();
    }
    let node = &cluster.nodes[0];
    let directory = node.directory.path();
    // Once it can be read, no process writes there any more.
    drop(survivor(node).await);
    give_to_nobody(directory);

    let read = survivor(node).await;
    // A command that prompts may be aborted here.
    assert_is_nobodys(directory);
    drop(read);
    assert_is_nobodys(directory);
    let kept = survivor(node).await.recover().unwrap();
    assert!(kept.join("log").is_dir());
    assert_is_nobodys(directory);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_group_continues_from_a_backup() {
    let backup = backup().await;
    assert_eq!(backup.members.len(), 3);
    let (term, index) = (backup.term, backup.index);
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("new");
    rebuild_target(&directory).restore(backup.clone()).unwrap();

    let again = rebuild_target(&directory).restore(backup);
    assert!(
        matches!(again, Err(RecoveryError::NotEmpty { .. })),
        "{again:?}"
    );
    let handle = Handle::<Counter>::open(config(9, &directory))
        .await
        .unwrap();
    leads(&handle).await;
    let state = handle.fork();
    assert_eq!((state.totals["a"], state.revision), (3, 3 + SKIPPED));
    assert_eq!(handle.propose(vec![Add::new("a", 1)]).await, Ok(vec![4]));
    let status = handle.status();
    assert_eq!(status.voters, [Peer::new(9, "127.0.0.1:1")]);
    assert!(status.term > term + (1 << 31), "{}", status.term);
    assert!(status.applied_index > Some(index + (1 << 39)), "{status:?}");
    handle.shutdown().await;
    drop(handle);

    let reopened = eventually("a free directory", async || {
        Handle::<Counter>::open(config(9, &directory)).await.ok()
    })
    .await;
    leads(&reopened).await;
    reopened.read_linearizable().await.unwrap();
    assert_eq!(reopened.fork().totals["a"], 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_restore_does_not_start_and_is_finished_by_another_restore() {
    let backup = backup().await;
    let folder = TempDir::new().unwrap();
    let directory = folder.path().to_owned();
    fs::create_dir_all(directory.join("recovery/log")).unwrap();
    let refused = Handle::<Counter>::open(config(9, &directory)).await;
    assert!(matches!(refused, Err(OpenError::UnfinishedRecovery { .. })));

    rebuild_target(&directory).restore(backup).unwrap();
    let handle = Handle::<Counter>::open(config(9, &directory))
        .await
        .unwrap();
    leads(&handle).await;
    assert_eq!(handle.fork().totals["a"], 3);
}

/// Opens a restored directory, if its data is complete.
async fn assert_is_restored(directory: &Path) {
    let handle = eventually(
        "a free directory",
        async || match Handle::<Counter>::open(config(9, directory)).await {
            Ok(handle) => Some(handle),
            Err(OpenError::InUse { .. }) => None,
            Err(error) => panic!("{error:?}"),
        },
    )
    .await;
    leads(&handle).await;
    assert_eq!(handle.fork().totals["a"], 3);
    handle.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_interrupted_after_its_data_was_complete_is_finished_by_another_restore() {
    let backup = backup().await;
    let folder = TempDir::new().unwrap();
    // Entries not yet in place when the machine stops, and whether they are still marked as complete.
    let cuts: [(&[&str], bool); 4] = [
        (&["snapshots", "log"], true),
        (&["log"], true),
        (&[], true),
        (&[], false),
    ];
    for (number, (staged, is_noted)) in cuts.into_iter().enumerate() {
        let directory = folder.path().join(number.to_string());
        rebuild_target(&directory).restore(backup.clone()).unwrap();
        let recovery = directory.join("recovery");
        fs::create_dir(&recovery).unwrap();
        for name in staged {
            fs::rename(directory.join(name), recovery.join(name)).unwrap();
        }
        if is_noted {
            fs::write(recovery.join("whole"), "").unwrap();
        }
        let refused = Handle::<Counter>::open(config(9, &directory)).await;
        assert!(matches!(refused, Err(OpenError::UnfinishedRecovery { .. })));

        let again = rebuild_target(&directory).restore(backup.clone());
        assert!(
            matches!(again, Err(RecoveryError::Finished { .. })),
            "{staged:?}: {again:?}"
        );
        assert!(!recovery.exists());
        assert_is_restored(&directory).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_recovery_is_no_target_for_a_restore() {
    let backup = backup().await;
    let folder = TempDir::new().unwrap();
    rebuild_target(folder.path())
        .restore(backup.clone())
        .unwrap();
    fs::create_dir_all(folder.path().join("recovery/snapshots")).unwrap();
    let refused = rebuild_target(folder.path()).restore(backup);
    assert!(
        matches!(refused, Err(RecoveryError::NotEmpty { .. })),
        "{refused:?}"
    );
    // The original data is readable, and the recovery may restart.
    assert!(SourceReplica::<Counter>::read(folder.path()).is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_survivor_continues_alone_and_returning_replicas_learn_that_they_are_not_members() {
    let mut cluster = Cluster::start(|_| {}).await;
    for _ in 0..20 {
        cluster.add("a", 1).await;
    }
    cluster.converge().await;
    let refused = SourceReplica::<Counter>::read(cluster.nodes[0].directory.path());
    assert!(matches!(
        refused,
        Err(RecoveryError::Open(OpenError::InUse { .. }))
    ));
    for node in &mut cluster.nodes {
        node.kill();
    }
    let found = survivor(&cluster.nodes[0]).await;
    let loss = found.loss();
    assert_eq!(
        (found.cluster_id(), found.replica_id()),
        ("test-cluster", 1)
    );
    assert_eq!(found.members().len(), 3);
    assert!(loss.index >= 20 && loss.time_ms > 0, "{loss:?}");
    let kept = found.recover().unwrap();
    assert!(kept.join("log").is_dir() && kept.join("snapshots").is_dir());

    cluster.nodes[0].start(|_| {}).await;
    leads(cluster.nodes[0].handle()).await;
    let state = cluster.nodes[0].handle().fork();
    assert_eq!((state.totals["a"], state.revision), (20, 20 + SKIPPED));
    assert_eq!(cluster.add("a", 1).await, 21);
    assert_eq!(cluster.nodes[0].handle().status().voters.len(), 1);

    // One of the others returns with all its data: it takes no part, and learns the reason.
    cluster.nodes[1].start(|_| {}).await;
    let returned = cluster.nodes[1].handle();
    let removal = eventually("it knows", async || returned.status().removal).await;
    assert_eq!(removal.members, [cluster.nodes[0].peer()]);
    assert_eq!(cluster.add("a", 1).await, 22);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_returning_replicas_neither_depose_a_survivor_nor_write_into_it() {
    let mut cluster = Cluster::start(|_| {}).await;
    cluster.add("a", 1).await;
    cluster.converge().await;
    for node in &mut cluster.nodes {
        node.kill();
    }
    survivor(&cluster.nodes[0]).await.recover().unwrap();
    for node in &mut cluster.nodes {
        node.start(|_| {}).await;
    }
    leads(cluster.nodes[0].handle()).await;
    // They are a majority of the group that they know, and may continue as it; none of it reaches the
    // source replica.
    let old = eventually("the old group leads", async || {
        let mut others = cluster.nodes[1..].iter().map(Node::handle);
        others.find(|it| it.leadership().borrow().is_self).cloned()
    })
    .await;
    assert_eq!(old.propose(vec![Add::new("b", 7)]).await, Ok(vec![7]));
    let new = cluster.nodes[0].handle();
    let term = new.status().term;
    for amount in 1..=20 {
        assert!(old.propose(vec![Add::new("b", 1)]).await.is_ok());
        assert_eq!(
            new.propose(vec![Add::new("a", 1)]).await,
            Ok(vec![1 + amount])
        );
    }
    assert_eq!(new.fork().totals.get("b"), None);
    assert_eq!(
        (new.status().term, new.leadership().borrow().is_self),
        (term, true)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_survivor_without_its_newest_snapshot_does_not_continue_from_an_older_one() {
    let small = |config: &mut Config| {
        config.snapshots.snapshot_every_entries = 10;
        config.snapshots.keep_entries = 2;
    };
    let mut cluster = Cluster::start(small).await;
    for _ in 0..50 {
        cluster.add("a", 1).await;
    }
    cluster.converge().await;
    eventually(
        "the log begins behind the snapshot before the newest",
        async || {
            let status = cluster.nodes[0].handle().status();
            let (covered, removed) = status.snapshot_index.zip(status.purged_index)?;
            // No further snapshot is due.
            let is_last = status.last_log_index? < covered + 10;
            (is_last && removed + 2 >= covered).then_some(())
        },
    )
    .await;
    for node in &mut cluster.nodes {
        node.kill();
    }
    let directory = cluster.nodes[0].directory.path();
    drop(survivor(&cluster.nodes[0]).await);
    assert!(names(&directory.join("snapshots")).len() > 1);
    fs::remove_file(newest_snapshot(directory)).unwrap();
    let refused = eventually(
        "a free directory",
        async || match SourceReplica::<Counter>::read(directory) {
            Err(RecoveryError::Open(OpenError::InUse { .. })) => None,
            read => Some(read.err()),
        },
    )
    .await;
    assert!(
        matches!(
            &refused,
            Some(RecoveryError::Open(OpenError::Corrupt { what, detail }))
                if what == "the snapshot folder" && detail.contains("the newest snapshot covers")
        ),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn other_data_than_a_replicas_is_not_recovered() {
    let folder = TempDir::new().unwrap();
    let refused = SourceReplica::<Counter>::read(folder.path());
    assert!(matches!(refused, Err(RecoveryError::Nothing { .. })));
    // A replica that was started and never belonged to a group.
    let opened = Handle::<Counter>::open(config(1, folder.path())).await;
    let handle = opened.unwrap();
    handle.shutdown().await;
    drop(handle);
    eventually("a refusal", async || {
        match SourceReplica::<Counter>::read(folder.path()) {
            Err(RecoveryError::NoGroup) => Some(()),
            Err(RecoveryError::Open(OpenError::InUse { .. })) => None,
            other => panic!("{:?}", other.err()),
        }
    })
    .await;
}
