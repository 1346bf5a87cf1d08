//! A full disk: the replica stops, the process keeps running, nothing acknowledged is lost. The limit is
//! the file size limit of a child process, which needs no privilege.

use std::path::{Path, PathBuf};
use std::process::Command;

use muster_raft_store::{Handle, Peer, ProposeError};
use tempfile::TempDir;

use crate::support::counter::{Add, Counter};
use crate::support::{config, leads, stops};

/// Environment variable with the child's folder.
const FOLDER: &str = "MUSTER_FULL_DISK_FOLDER";
/// Largest file of the child, in the shell's blocks of 512 bytes: 4 MiB.
const BLOCKS: &str = "8192";
/// Bytes of one command.
const COMMAND_BYTES: usize = 20_000;
/// More commands than fit within the limit.
const COMMANDS_MAX: u64 = 2_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_nothing_acknowledged() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return fill(&PathBuf::from(folder)).await;
    }
    let folder = TempDir::new().unwrap();
    let status = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\"", BLOCKS])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "full_disk::a_full_disk_loses_nothing_acknowledged",
        ])
        .env(FOLDER, folder.path())
        .status()
        .unwrap();
    assert!(status.success(), "the child failed: {status}");

    let acknowledged = std::fs::read_to_string(folder.path().join("acknowledged")).unwrap();
    let acknowledged: u64 = acknowledged.parse().unwrap();
    assert!(acknowledged > 0);
    let handle = lead(folder.path()).await;
    handle.read_linearizable().await.unwrap();
    let revision = handle.with_state(|state| state.revision);
    // The last one was answered as unknown: it may have succeeded.
    assert!(
        (acknowledged..=acknowledged + 1).contains(&revision),
        "{revision}"
    );
    handle.shutdown().await;
}

async fn lead(folder: &Path) -> Handle<Counter> {
    let handle = Handle::<Counter>::open(config(1, &folder.join("data")))
        .await
        .unwrap();
    if handle.status().voters.is_empty() {
        let members = vec![Peer::new(1, "127.0.0.1:1")];
        handle.initialize(members).await.unwrap();
    }
    leads(&handle).await;
    handle
}

/// Proposes until the disk is full, and records what was acknowledged.
async fn fill(folder: &Path) {
    let handle = lead(folder).await;
    let name = "x".repeat(COMMAND_BYTES);
    let mut acknowledged = 0;
    let error = loop {
        match handle.propose(vec![Add::new(&name, 1)]).await {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < COMMANDS_MAX, "the disk never fills");
    };
    assert!(
        matches!(error, ProposeError::Unknown | ProposeError::Stopped),
        "{error:?}"
    );
    stops(&handle).await;
    std::fs::write(folder.join("acknowledged"), acknowledged.to_string()).unwrap();
}
