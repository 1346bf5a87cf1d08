//! Frozen bytes of every command and of a state: a change of format must not go unnoticed.
//!
//! `UPDATE_FROZEN=1 cargo test -p muster-log --test wire frozen::` rewrites them. Do that only for new
//! samples; for any other difference, raise the format version and keep reading the old bytes.
mod samples;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use muster_engine::state::State;
use muster_log::{
    COMMAND_FORMAT, LogError, OLDEST_COMMAND_FORMAT, STATE_FORMAT, decode_command, encode_command,
    read_state, write_state,
};
use muster_model::command::{CheckpointCommand, Command, ConfigCommand, HostCommand};
use muster_proto::v1;

/// Bytes in one line of a frozen file.
const LINE_BYTES: usize = 48;

fn frozen_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(format!("{name}.hex"))
}

/// Returns the frozen bytes of this name; first written if `UPDATE_FROZEN` is set.
fn frozen(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path = frozen_path(name);
    if std::env::var_os("UPDATE_FROZEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, to_hex(bytes)).unwrap();
    }
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; see this file's head", path.display()));
    from_hex(&text)
}

fn to_hex(bytes: &[u8]) -> String {
    let lines = bytes
        .chunks(LINE_BYTES)
        .map(|line| HEXLOWER.encode(line) + "\n");
    lines.collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    text.lines()
        .flat_map(|line| HEXLOWER.decode(line.as_bytes()).unwrap())
        .collect()
}

fn encoded(command: &Command) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_command(command, &mut bytes);
    bytes
}

fn written(state: &State) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_state(state, &mut bytes).unwrap();
    bytes
}

#[test]
fn every_command_keeps_its_bytes() {
    for (name, command) in samples::commands() {
        let bytes = encoded(&command);
        let kept = frozen(name, &bytes);
        assert_eq!(decode_command(&kept).unwrap(), command, "{name}");
        assert_eq!(to_hex(&bytes), to_hex(&kept), "{name}");
    }
}

#[test]
fn a_state_keeps_its_bytes() {
    let states = [
        ("state", samples::state::state()),
        ("state_with_cells", samples::cells::state()),
        ("state_with_moves", samples::moves::state()),
        ("state_with_reported_cells", samples::reported::state()),
        ("state_with_user_histories", samples::histories::state()),
        ("state_with_lives", samples::lives::state()),
        ("state_with_barrier", samples::barrier::state()),
        ("state_with_suspension", samples::suspension::state()),
        ("state_with_halts", samples::suspension::state_with_pauses()),
        ("state_with_members", samples::members::state()),
        ("state_with_retries", samples::retries::state()),
        ("state_with_health", samples::health::state()),
        ("state_with_one_way_link", samples::silence::state()),
        (
            "state_with_culprits",
            samples::retries::state_with_culprits(),
        ),
        ("state_with_causes", samples::causes::state()),
        ("state_with_replicas", samples::replicas::state()),
        ("state_with_users", samples::access::state()),
        (
            "state_with_join_tokens",
            samples::access::state_with_join_tokens(),
        ),
    ];
    for (name, state) in states {
        let bytes = written(&state);
        let kept = frozen(name, &bytes);
        let read = read_state(&mut kept.as_slice()).unwrap();
        assert_eq!(read.state_hash(), state.state_hash(), "{name}");
        assert_eq!(read.queues, state.queues, "{name}");
        assert_eq!(read.topology, state.topology, "{name}");
        assert_eq!(
            read.configured_topology, state.configured_topology,
            "{name}"
        );
        assert_eq!(read.index, state.index, "{name}");
        assert_eq!(read.replicas, state.replicas, "{name}");
        assert_eq!(read.users, state.users, "{name}");
        assert_eq!(read.join_tokens, state.join_tokens, "{name}");
        assert!(read.events.iter().eq(state.events.iter()), "{name}");
        assert_eq!(to_hex(&bytes), to_hex(&kept), "{name}");
    }
}

/// Number of a command's kind; a new kind does not compile here until it gets one, and then lacks a sample.
fn kind_of(command: &Command) -> u32 {
    match command {
        Command::LeadershipStarted { .. } => 0,
        Command::SubmitJob { .. } => 1,
        Command::CancelJob { .. } => 2,
        Command::Host(HostCommand::RegisterHost { .. }) => 3,
        Command::Host(HostCommand::SetHostHealth { .. }) => 4,
        Command::Host(HostCommand::SetGpuHealth { .. }) => 5,
        Command::Place(_) => 6,
        Command::ReportTask(_) => 7,
        Command::StopAttempt { .. } => 8,
        Command::Block { .. } => 9,
        Command::Unblock { .. } => 10,
        Command::ExpireBlocks { .. } => 11,
        Command::Checkpoint(CheckpointCommand::CommitCheckpoint { .. }) => 12,
        Command::Config(ConfigCommand::SetQueue { .. }) => 13,
        Command::Prune { .. } => 14,
        Command::Config(ConfigCommand::ConfigureQueues { .. }) => 15,
        Command::Config(ConfigCommand::SetTopology { .. }) => 16,
        Command::Claim(_) => 17,
        Command::DropClaim { .. } => 18,
        Command::SetAllocationBasis { .. } => 19,
        Command::Checkpoint(CheckpointCommand::MarkCheckpointDamaged { .. }) => 20,
        Command::ReleaseGang { .. } => 21,
        Command::Config(ConfigCommand::SetJobDefaults { .. }) => 22,
        Command::SubmitPipeline { .. } => 23,
        Command::SuspendJob { .. } => 24,
        Command::ResumeJob { .. } => 25,
        Command::SwapMember(_) => 26,
        Command::Health(_) => 27,
        Command::RecordReplicas { .. } => 28,
        Command::Access(_) => 29,
    }
}

/// Kinds of commands.
const COMMAND_KINDS: u32 = 30;

/// Upper bound of the numbers of event kinds; some numbers are reserved.
const EVENT_KINDS_END: i32 = 1_000;

#[test]
fn the_samples_contain_every_kind() {
    let commands = samples::commands();
    let seen: BTreeSet<u32> = commands
        .iter()
        .map(|(_, command)| kind_of(command))
        .collect();
    assert_eq!(seen, (0..COMMAND_KINDS).collect());

    let kinds = samples::state::all_kinds();
    let seen: BTreeSet<i32> = kinds
        .iter()
        .map(|kind| v1::EventKind::from(kind).into())
        .collect();
    let all = (1..EVENT_KINDS_END).filter(|number| v1::EventKind::try_from(*number).is_ok());
    assert_eq!(seen, all.collect());
}

#[test]
fn formats_that_are_not_read_are_refused_by_number() {
    let mut command = encoded(&samples::commands()[0].1);
    let mut state = written(&State::default());
    let newest = u32::from(COMMAND_FORMAT);
    assert_eq!(newest, STATE_FORMAT);
    let oldest = u32::from(OLDEST_COMMAND_FORMAT);
    for version in [0, oldest - 1, newest + 1] {
        command[0] = u8::try_from(version).unwrap();
        state[8..12].copy_from_slice(&version.to_le_bytes());
        let refused = [
            decode_command(&command).unwrap_err(),
            read_state(&mut state.as_slice()).unwrap_err(),
        ];
        for error in refused {
            let limit = match error {
                LogError::NewerVersion {
                    found, supported, ..
                } if found == version => supported,
                LogError::OlderVersion { found, oldest, .. } if found == version => oldest,
                other => panic!("{other}"),
            };
            assert_eq!(limit, if version > newest { newest } else { oldest });
        }
    }
}

#[test]
fn a_state_truncated_anywhere_is_refused() {
    let bytes = written(&samples::cells::state());
    for length in 0..bytes.len() {
        let error = read_state(&mut &bytes[..length]).unwrap_err();
        assert!(
            matches!(error, LogError::Malformed { .. }),
            "{length}: {error}"
        );
    }
}

#[test]
fn a_command_of_an_unknown_kind_is_refused() {
    // Field 999, empty message.
    let error = decode_command(&[COMMAND_FORMAT, 0xba, 0x3e, 0x00]).unwrap_err();
    assert!(error.to_string().contains("kind"), "{error}");
    assert!(decode_command(&[]).is_err());
}
