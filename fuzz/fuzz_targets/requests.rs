//! What clients ask for in writing: each request becomes a command or a refusal with its status, each command survives the log,
//! and a cluster that applies it stays sound.
#![no_main]

use libfuzzer_sys::fuzz_target;
use muster_core::apply::apply;
use muster_core::audit::audit;
use muster_core::command::Command;
use muster_core::rejection::Rejection;
use muster_core::state::State;
use muster_core::time::TimeMs;
use muster_fuzz::{SMALL, assert_same, bounded, choice, message, or_panic};
use muster_proto::convert::{
    add_user_command, block_command, cancel_command, configure_queues_command, remove_user_command,
    reset_breaker_command, resume_command, rotate_token_command, set_health_rules_command,
    set_queue_command, set_topology_command, submit_command, submit_pipeline_command,
    suspend_command, unblock_command,
};
use muster_proto::log::{decode_command, encode_command};
use muster_proto::status::{ErrorReport, status_of};

/// Any time of today's.
const NOW: TimeMs = TimeMs(1_800_000_000_000);

type Made = Option<Result<Command, Rejection>>;

/// New ones go to the end: seeds name them by their number.
const REQUESTS: [fn(&[u8]) -> Made; 15] = [
    |bytes| message(bytes).map(submit_command),
    |bytes| message(bytes).map(cancel_command),
    |bytes| message(bytes).map(suspend_command),
    |bytes| message(bytes).map(resume_command),
    |bytes| message(bytes).map(block_command),
    |bytes| message(bytes).map(unblock_command),
    |bytes| message(bytes).map(set_queue_command),
    |bytes| message(bytes).map(configure_queues_command),
    |bytes| message(bytes).map(set_topology_command),
    |bytes| message(bytes).map(set_health_rules_command),
    |bytes| message(bytes).map(reset_breaker_command),
    |bytes| message(bytes).map(add_user_command),
    |bytes| message(bytes).map(remove_user_command),
    |bytes| message(bytes).map(rotate_token_command),
    |bytes| message(bytes).map(submit_pipeline_command),
];

/// A refusal reaches its client.
fn refuse(rejection: &Rejection) {
    let report = ErrorReport::of(&status_of(rejection));
    assert!(!report.reason.is_empty(), "{rejection}");
}

/// A cluster that nothing has happened to applies it twice.
fn check(command: &Command) {
    let mut bytes = Vec::new();
    encode_command(command, &mut bytes);
    let again = or_panic(decode_command(&bytes), "what was written is refused");
    assert_same(&again, command);
    let mut state = State::default();
    for _ in 0..2 {
        if let Err(rejection) = apply(&mut state, NOW, command).result {
            refuse(&rejection);
        }
        let found = audit(&state);
        assert!(found.is_empty(), "{found:?}");
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = choice(data) else {
        return;
    };
    bounded(data, SMALL, || {
        match REQUESTS[kind % REQUESTS.len()](bytes) {
            Some(Ok(command)) => check(&command),
            Some(Err(rejection)) => refuse(&rejection),
            None => {}
        }
    });
});
