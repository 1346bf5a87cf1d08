//! Configurations set by simulated admins, and the requirements of simulated jobs on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::state::State;
use muster_health::rules::RuleSet;
use muster_model::access::{JoinGrant, Role, TokenHash, User};
use muster_model::command::{
    AccessCommand, Block, BlockTarget, Command, ConfigCommand, HealthCommand, Planned,
};
use muster_model::host::Host;
use muster_model::ids::RequestKey;
use muster_model::quota::{
    Amounts, Defragment, Guarantee, Limits, QueueConfig, QueueOrder, QueueTree,
};
use muster_model::spec::{DEFAULT_QUEUE, Layout, Packing, Scheduling, Within};
use muster_model::time::TimeMs;
use muster_model::topology::{CellGroup, CellPlace, HostShape, Topology};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::sim::scale::Tempo;

/// Queues in every drawn tree, to which jobs go: they never disappear, so that every submission is
/// accepted.
const QUEUES: [&str; 3] = [DEFAULT_QUEUE, "research/vision", "research/language"];
/// Defragmentation that starts soon and often, so that moves coincide with faults.
const EAGER_MOVES: Defragment = Defragment {
    moves_max: 3,
    moves_in_flight_max: 5,
    interval_ms: 5_000,
    after_ms: 500,
    cost_percent_max: 100,
    restart_ms: 0,
    young_ms: 600_000,
};
/// Range of the delay and of the duration of a host's maintenance, in milliseconds: both end long before a
/// world does.
const MAINTENANCE_MS: std::ops::Range<u64> = 2_000..20_000;
/// Author of configurations.
pub(super) const ADMIN: &str = "admin";
/// Users with roles, with distinct initials.
const USERS: [&str; 3] = ["ada", "bob", "eve"];
/// Join tokens, and the hosts that present them in addition to the world's own.
const JOIN_TOKENS: [&str; 2] = ["t1", "t2"];
/// See [`JOIN_TOKENS`].
const NEWCOMERS: [&str; 3] = ["new-1", "new-2", "other"];
/// Parent of some of them.
const PARENT: &str = "research";
/// Maximum retry delay and maximum probation: a world has about a minute of faults.
const WAIT_S_MAX: u64 = 15;
/// Hosts of the largest world.
const HOSTS_MAX: u32 = 8;
/// GPUs of the largest host.
const GPUS_MAX: u32 = 8;
/// Time limit of the jobs that have one: between the shortest and the longest run times.
const RUN_TIME_MS_MAX: u64 = 8_000;
/// Time within which a gang must be complete, for those with a limit.
const ASSEMBLY_MS_MAX: u64 = 20_000;

/// Draws a new tree of queues or a new topology.
pub(super) fn draw_configuration(random: &mut ChaCha8Rng, request: RequestKey) -> Command {
    let author = ADMIN.to_owned();
    if random.random_range(0..4) == 0 {
        let topology = Arc::new(draw_topology(random));
        return Command::Config(ConfigCommand::SetTopology {
            request,
            author,
            topology,
        });
    }
    let tree = Arc::new(draw_tree(random));
    Command::Config(ConfigCommand::ConfigureQueues {
        request,
        author,
        tree,
    })
}

/// Draws the rules shipped with Muster, with delays that fit into a world and differ each time.
pub(super) fn draw_health_rules(random: &mut ChaCha8Rng, request: RequestKey) -> Command {
    let wait_s = random.random_range(1..WAIT_S_MAX);
    let rules = RuleSet::shipped_text_with(wait_s, random.random_range(1..WAIT_S_MAX));
    Command::Health(HealthCommand::SetRules {
        request,
        author: ADMIN.to_owned(),
        text: rules.into(),
        shipped: None,
    })
}

/// Draws a user to add, to remove or to give another token, or a worker that joins by a token; names are
/// few, so that requests conflict.
pub(super) fn draw_access(random: &mut ChaCha8Rng, request: RequestKey) -> Command {
    if random.random_range(0..3) == 0 {
        return draw_joining(random, request);
    }
    let author = ADMIN.to_owned();
    let name = USERS[random.random_range(0..USERS.len())].to_owned();
    let mut hash: [u8; 32] = random.random();
    // Tokens identify their users, so no two users have the same one.
    hash[0] = name.as_bytes()[0];
    let token = TokenHash(hash);
    Command::Access(match random.random_range(0..4) {
        0 => AccessCommand::RemoveUser {
            request,
            author,
            name,
        },
        1 => AccessCommand::RotateToken {
            request,
            author,
            name,
            token,
        },
        _ => AccessCommand::AddUser {
            request,
            author,
            name,
            user: draw_user(random, token),
        },
    })
}

/// Draws the creation, revocation or presentation of a join token: often a wrong or expired one.
fn draw_joining(random: &mut ChaCha8Rng, request: RequestKey) -> Command {
    let author = ADMIN.to_owned();
    let id = JOIN_TOKENS[random.random_range(0..JOIN_TOKENS.len())].to_owned();
    let hash = TokenHash([random.random_range(0..2); 32]);
    Command::Access(match random.random_range(0..5) {
        0 => AccessCommand::RevokeJoinToken {
            request,
            author,
            id,
        },
        1 | 2 => AccessCommand::AddJoinToken {
            request,
            author,
            id,
            grant: JoinGrant {
                hash,
                ttl_ms: random.random_range(1_000..30_000),
                uses_max: random.random_range(1..4),
                host_pattern: (random.random_range(0..2) == 0).then(|| "new-*".to_owned()),
            },
        },
        _ => AccessCommand::UseJoinToken {
            request,
            id,
            token: hash,
            host: NEWCOMERS[random.random_range(0..NEWCOMERS.len())].to_owned(),
        },
    })
}

fn draw_user(random: &mut ChaCha8Rng, token: TokenHash) -> User {
    let role = Role::ALL[random.random_range(0..Role::ALL.len())];
    let is_bound = role.is_restricted_to_queues() && random.random_range(0..2) == 0;
    User {
        role,
        queues: is_bound
            .then(|| DEFAULT_QUEUE.to_owned())
            .into_iter()
            .collect(),
        token: (random.random_range(0..4) > 0).then_some(token),
    }
}

fn draw_tree(random: &mut ChaCha8Rng) -> QueueTree {
    let mut queues = BTreeMap::new();
    let mut guaranteed = 0;
    for name in QUEUES {
        let queue = draw_queue_config(random);
        if let (Guarantee::Amounts(amounts), true) = (&queue.guarantee, name != DEFAULT_QUEUE) {
            guaranteed += amounts.gpus;
        }
        queues.insert(name.to_owned(), queue);
    }
    let around = QueueConfig {
        guarantee: gpus_guaranteed(guaranteed),
        weight: random.random_range(1..4),
        ..QueueConfig::default()
    };
    queues.insert(PARENT.to_owned(), around);
    QueueTree {
        queues,
        history_half_life_ms: random.random_bool(0.3).then_some(10_000),
        // Not drawn, so that existing seeds keep their worlds.
        defragment: (guaranteed % 2 == 0).then_some(EAGER_MOVES),
    }
}

fn gpus_guaranteed(gpus: u64) -> Guarantee {
    Guarantee::Amounts(Amounts {
        gpus,
        ..Amounts::default()
    })
}

fn draw_queue_config(random: &mut ChaCha8Rng) -> QueueConfig {
    let orders = [QueueOrder::Priority, QueueOrder::Fifo, QueueOrder::Fair];
    QueueConfig {
        weight: random.random_range(1..4),
        order: orders[random.random_range(0..orders.len())],
        guarantee: gpus_guaranteed(random.random_range(0..3)),
        user_limit: Limits {
            gpus: random.random_bool(0.2).then(|| random.random_range(8..20)),
            ..Limits::default()
        },
        preempt_by_priority: random.random_bool(0.5),
        backfill: random.random_bool(0.7),
        reserve_after_ms: random.random_range(1_000..20_000),
        protected_ms: random.random_range(0..3_000),
        movable: true,
        ..QueueConfig::default()
    }
}

/// Draws racks of two hosts, with sockets of half a host's GPUs for each host size.
fn draw_topology(random: &mut ChaCha8Rng) -> Topology {
    let rack_hosts = random.random_range(1..4);
    let places = (0..HOSTS_MAX.div_ceil(rack_hosts)).map(|rack| CellPlace {
        cell: vec![format!("rack-{rack}")],
        hosts: (rack * rack_hosts..(rack + 1) * rack_hosts)
            .map(|number| format!("node{number:02}"))
            .collect(),
    });
    let shapes = (2..=GPUS_MAX).map(|gpus| {
        let socket = |range: std::ops::Range<u32>| CellGroup {
            level: "socket".to_owned(),
            gpus: range.collect(),
        };
        HostShape {
            gpus,
            groups: vec![socket(0..gpus / 2), socket(gpus / 2..gpus)],
            ..HostShape::default()
        }
    });
    Topology {
        above: vec!["rack".to_owned()],
        inside: vec!["socket".to_owned()],
        places: places.collect(),
        shapes: shapes.collect(),
    }
}

/// Draws a queue for a job; only the default one exists before the first configuration.
pub(super) fn draw_queue(random: &mut ChaCha8Rng) -> &'static str {
    QUEUES[random.random_range(0..QUEUES.len())]
}

pub(super) fn draw_scheduling(random: &mut ChaCha8Rng, gang: bool, tempo: Tempo) -> Scheduling {
    let run_time_ms_max = RUN_TIME_MS_MAX * tempo.limit_factor();
    let packing = [
        Packing::Pack,
        Packing::Pack,
        Packing::Spread,
        Packing::Exclusive,
    ];
    Scheduling {
        opportunistic: random.random_bool(0.2),
        run_time_ms_max: random.random_bool(0.3).then_some(run_time_ms_max),
        assembly_ms_max: (gang && random.random_bool(0.3)).then_some(ASSEMBLY_MS_MAX),
        within: (gang && random.random_bool(0.3)).then(|| preferred("rack")),
        packing: packing[random.random_range(0..packing.len())],
        ..Scheduling::default()
    }
}

pub(super) fn draw_layout(random: &mut ChaCha8Rng) -> Layout {
    Layout {
        within: random.random_bool(0.2).then(|| preferred("socket")),
        ..Layout::default()
    }
}

/// A preferred constraint, not a required one: a world ends only when every job has, and racks may be too
/// small permanently.
fn preferred(level: &str) -> Within {
    Within {
        level: level.to_owned(),
        required: false,
    }
}

/// Draws maintenance of a host that begins soon, with a drain, or the cancellation of a planned one; or an
/// immediate block of a host or a GPU, with an expiry or until an operator lifts it.
pub(super) fn draw_maintenance(
    random: &mut ChaCha8Rng,
    state: &State,
    request: RequestKey,
) -> Option<Command> {
    let count = state.hosts.len();
    let nth = random.random_range(0..count.max(1));
    let host = state.hosts.values().nth(nth)?;
    let target = BlockTarget::Host(host.name.to_string());
    let author = ADMIN.to_owned();
    if host.planned.is_some() {
        return Some(Command::Unblock {
            request,
            target,
            author,
            planned: true,
        });
    }
    if random.random_bool(0.5) {
        return Some(draw_block(random, host, state.time, request));
    }
    let mut span_ms = || random.random_range(MAINTENANCE_MS);
    let at = state.time.after(span_ms());
    let block = Block {
        reason: "firmware".to_owned(),
        author,
        evidence: String::new(),
        since: state.time,
        expires_at: Some(at.after(span_ms())),
        drain_deadline: Some(at.after(span_ms())),
        planned: Some(Planned {
            at,
            notice_ms: span_ms(),
        }),
    };
    Some(Command::Block {
        request,
        target,
        block,
        spares_last: false,
    })
}

/// Draws a host, or one of its GPUs, for an admin to block; running tasks may stay or have to leave.
fn draw_block(random: &mut ChaCha8Rng, host: &Host, now: TimeMs, request: RequestKey) -> Command {
    let nth = random.random_range(0..2 * host.gpus.len().max(1));
    let target = match host.gpus.get(nth) {
        Some(gpu) => BlockTarget::Gpu(gpu.uuid),
        None => BlockTarget::Host(host.name.to_string()),
    };
    let mut draw_at = || {
        let span_ms = random.random_range(MAINTENANCE_MS);
        random.random_bool(0.5).then_some(now.after(span_ms))
    };
    let block = Block {
        reason: "looks odd".to_owned(),
        author: ADMIN.to_owned(),
        evidence: String::new(),
        since: now,
        expires_at: draw_at(),
        drain_deadline: draw_at(),
        planned: None,
    };
    Command::Block {
        request,
        target,
        block,
        spares_last: false,
    }
}
