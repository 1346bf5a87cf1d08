//! Write requests of clients, one after the other: each becomes a command or a refusal with its status, each
//! command survives encoding, and the cluster that applies it stays consistent and can be planned for.

use std::sync::LazyLock;

use muster_harness::Cluster;
use muster_log::{decode_command, encode_command};
use muster_model::command::Command;
use muster_model::rejection::Rejection;
use muster_planner::{Budget, plan};
use muster_proto::convert::{
    add_join_token_command, add_user_command, block_command, cancel_command,
    configure_queues_command, remove_user_command, reset_breaker_command, resume_command,
    revoke_join_token_command, rotate_token_command, set_queue_command, set_topology_command,
    submit_command, submit_pipeline_command, suspend_command, unblock_command,
    use_join_token_command,
};
use muster_proto::status::{ErrorReport, status_of};
use muster_scheduler::set_health_rules_command;

use crate::{assert_same, bounded, message, or_panic};

/// Maximum requests of one input.
const REQUESTS_MAX: usize = 4;
/// Bytes before those of a request.
const HEAD_BYTES: usize = 3;
/// Memory of a small cluster and of planning for it, in bytes.
const CLUSTER: usize = 64 << 20;
/// Budget of a planning round, enough for four requests.
const BUDGET: Budget = Budget {
    steps_max: 64,
    examined_max: 256,
};

/// Two hosts with eight GPUs each.
static FRESH: LazyLock<Cluster> = LazyLock::new(|| Cluster::with_hosts(2, 8));

type CommandResult = Option<Result<Command, Rejection>>;

/// New ones are appended: seeds refer to them by number.
const REQUESTS: [fn(&[u8]) -> CommandResult; 18] = [
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
    |bytes| message(bytes).map(add_join_token_command),
    |bytes| message(bytes).map(revoke_join_token_command),
    |bytes| message(bytes).map(use_join_token_command),
];

/// Checks that a refusal converts to its status.
fn refuse(rejection: &Rejection) {
    let report = ErrorReport::of(&status_of(rejection));
    assert!(!report.reason.is_empty(), "{rejection}");
}

/// Checks that a command survives encoding, and that the cluster passes its audit after applying it.
fn check(cluster: &mut Cluster, command: &Command) {
    let mut bytes = Vec::new();
    encode_command(command, &mut bytes);
    let again = or_panic(decode_command(&bytes), "what was written is refused");
    assert_same(&again, command);
    if let Err(rejection) = cluster.apply(command).result {
        refuse(&rejection);
    }
}

/// The next request of an input: number, length, and bytes.
fn next<'a>(data: &mut &'a [u8]) -> Option<(usize, &'a [u8])> {
    let (head, rest) = data.split_at_checked(HEAD_BYTES)?;
    let length = usize::from(u16::from_le_bytes([head[1], head[2]]));
    let (bytes, rest) = rest.split_at(length.min(rest.len()));
    *data = rest;
    Some((usize::from(head[0]), bytes))
}

/// Checks one input.
pub(crate) fn run(data: &[u8]) {
    let fresh = &*FRESH;
    bounded(data, CLUSTER, || {
        let (mut cluster, mut rest) = (fresh.clone(), data);
        for _ in 0..REQUESTS_MAX {
            let Some((kind, bytes)) = next(&mut rest) else {
                break;
            };
            match REQUESTS[kind % REQUESTS.len()](bytes) {
                Some(Ok(command)) => check(&mut cluster, &command),
                Some(Err(rejection)) => refuse(&rejection),
                None => {}
            }
        }
        // The planner's steps are applied and audited too.
        for step in plan(&cluster.state, cluster.now, BUDGET).steps {
            cluster.apply(&step);
        }
    });
}
