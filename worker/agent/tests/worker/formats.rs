//! Compatibility tests: files that earlier agents and supervisors left on disk are read by this build, so
//! that tasks survive an upgrade.
//!
//! The files in `tests/data` are as the builds before command format 4 wrote them. They are never
//! regenerated.

use std::path::{Path, PathBuf};

use muster_control::agent::JournalRecord;
use muster_model::command::Exit;
use muster_model::heartbeat::{CheckpointReport, WorkerTaskPhase};
use muster_model::ids::{AttemptEpoch, LeadershipEpoch};
use muster_worker::journal::Journal;
use muster_worker::supervisor::{ExitRecord, TaskSpec};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn read<T: serde::de::DeserializeOwned>(name: &str) -> T {
    serde_json::from_slice(&std::fs::read(data(name)).unwrap()).unwrap()
}

fn killed_for_memory() -> Exit {
    Exit {
        signal: Some(9),
        out_of_memory: true,
        ..Exit::default()
    }
}

#[test]
fn an_earlier_end_is_read() {
    assert_eq!(read::<ExitRecord>("exit.json").exit, killed_for_memory());
}

#[test]
fn an_earlier_checkpoint_is_read() {
    let report: CheckpointReport = read("checkpoint.json");
    assert_eq!((report.step, report.save_ms), (40, None));
}

#[test]
fn an_earlier_specification_is_read() {
    let spec: TaskSpec = read("spec.json");
    let assignment = spec.assignment;
    assert_eq!(assignment.epoch, AttemptEpoch(11));
    assert_eq!(assignment.rank.master_port, 20_011);
    assert_eq!(assignment.checkpoint.unwrap().step, 40);
    assert_eq!(assignment.stop.unwrap().grace_ms, 5_000);
}

#[test]
fn an_earlier_journal_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    std::fs::copy(data("journal"), &path).unwrap();
    let (_, records) = Journal::open(&path).unwrap();
    assert_eq!(records.len(), 7);
    assert_eq!(records[0], JournalRecord::Leader(LeadershipEpoch(3)));
    let ended = |record: &JournalRecord| match record {
        JournalRecord::Ended { phase, .. } => Some(phase.clone()),
        _ => None,
    };
    let ends: Vec<WorkerTaskPhase> = records.iter().filter_map(ended).collect();
    assert_eq!(ends[0], WorkerTaskPhase::Exited(killed_for_memory()));
    assert!(matches!(ends[1], WorkerTaskPhase::Gone { .. }));
}
