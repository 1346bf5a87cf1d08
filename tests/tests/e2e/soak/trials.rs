//! Fault trials that CI leaves out.

use std::os::unix::fs::PermissionsExt;

use muster_tests::muster_binary;
use serde_json::Value;

use crate::faults::trials::{played, played_with};

#[tokio::test]
async fn a_training_continues_while_its_agent_is_replaced_by_another_program() {
    if let Some(row) = played("agent-upgraded").await {
        assert_eq!(
            (&row["attempts"], &row["steps_repeated"]),
            (&1.into(), &0.into())
        );
    }
}

/// The program that starts workers records the start and continues as the product.
#[tokio::test]
async fn a_training_continues_while_an_agent_of_another_build_is_replaced_by_this_one() {
    let folder = tempfile::tempdir().unwrap();
    let (previous, started) = (folder.path().join("muster"), folder.path().join("started"));
    let script = format!(
        "#!/bin/sh\necho \"$1\" >> {}\nexec {} \"$@\"\n",
        started.display(),
        muster_binary().display()
    );
    std::fs::write(&previous, script).unwrap();
    std::fs::set_permissions(&previous, PermissionsExt::from_mode(0o755)).unwrap();
    let more = ["--previous", previous.to_str().unwrap()];
    if let Some(row) = played_with("agent-upgraded", &more).await {
        let (attempts, repeated) = (&row["attempts"], &row["steps_repeated"]);
        assert_eq!((attempts, repeated), (&1.into(), &0.into()));
        // The three agents, and not the replacement of one of them.
        let started = std::fs::read_to_string(&started).unwrap();
        assert_eq!(started.lines().collect::<Vec<_>>(), ["worker"; 3]);
    }
}

#[tokio::test]
async fn a_training_on_a_host_that_cannot_send_continues_elsewhere_and_never_twice() {
    if let Some(row) = played("host-cut-out").await {
        assert_eq!(row["lived_at_once"], Value::Array(Vec::new()));
    }
}

#[tokio::test]
async fn a_training_survives_a_damaged_checkpoint() {
    if let Some(row) = played("checkpoint-damaged").await {
        assert!(row["steps_repeated"].as_u64() > Some(0), "{row}");
    }
}

#[tokio::test]
async fn a_training_on_a_host_that_cannot_receive_for_less_than_its_grace_continues_there() {
    if let Some(row) = played("host-cut-briefly-in").await {
        let (attempts, repeated) = (&row["attempts"], &row["steps_repeated"]);
        assert_eq!((attempts, repeated), (&1.into(), &0.into()), "{row}");
    }
}

#[tokio::test]
async fn a_training_survives_a_full_disk_while_it_saves() {
    if let Some(row) = played("checkpoint-disk-full").await {
        assert!(row["back_ms"].as_u64().is_some(), "{row}");
    }
}

#[tokio::test]
async fn a_training_that_ignores_a_stop_request_is_killed_and_continues_later() {
    if let Some(row) = played("stop-ignored").await {
        assert_eq!(row["attempts"], 2, "{row}");
    }
}
