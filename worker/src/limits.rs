//! Every limit of a worker's agent, with its reason; its supervisors have their own.

use std::time::Duration;

use muster_core::limits::PARTITION_GRACE_MS_MIN;
use muster_core::timings::kill_ms;
use muster_supervisor::limits::{LEASE_TICK, SUPERVISOR_OVERDUE_MS_MAX};

/// Ended attempts whose logs are kept on a host.
pub const LOG_ATTEMPTS_KEPT_MAX: usize = 2_000;
/// Bytes that the logs of ended attempts may hold on a host.
pub const LOG_BYTES_KEPT_MAX: u64 = 8 << 30;
/// Bytes of output in one message to the leader.
pub const LOG_CHUNK_BYTES: usize = 64 << 10;
/// Requests for output that one session serves at a time.
pub const LOG_REQUESTS_MAX: usize = 64;
/// Lines that a request for the last lines may ask for: more is a download, which goes by offset.
pub const LOG_TAIL_LINES_MAX: u64 = 100_000;
/// How often a followed log is looked at.
pub const LOG_FOLLOW_INTERVAL: Duration = Duration::from_millis(100);
/// How often the checkpoint directory is looked at for checkpoints registered by files alone.
pub const CHECKPOINT_SCAN_INTERVAL: Duration = Duration::from_secs(1);
// The agent, too, looks at frozen supervisors every `LEASE_TICK`.
const _: () = assert!(
    SUPERVISOR_OVERDUE_MS_MAX as u128 + LEASE_TICK.as_millis()
        < kill_ms(PARTITION_GRACE_MS_MIN) as u128
);
/// How long the agent tries to reach a supervisor that lives but has not opened its socket yet.
pub const ADOPTION_MAX: Duration = Duration::from_secs(2);
/// Tasks whose directories are made or removed at a time: each takes a thread, and more only wait for the same disk.
pub const DIRECTORIES_AT_ONCE_MAX: usize = 8;
/// How long the agent waits for a supervisor to be forked before it starts one as a program.
pub const FORK_MAX: Duration = Duration::from_secs(2);
/// By how much a lease is pushed out at least, in milliseconds: beats may be acknowledged two hundred times a second, and each
/// extension wakes a supervisor.
pub const LEASE_EXTENSION_MS_MIN: u64 = 500;
/// Pause between two beats that are sent because something changed: what changes meanwhile goes with the next.
pub const STATUS_PAUSE: Duration = Duration::from_millis(5);
/// Bytes of a data directory's path: a Unix socket's path has 107, ours need 50 behind it.
pub const DATA_DIRECTORY_BYTES_MAX: usize = 57;
/// Bytes of the journal before it is rewritten with what still matters.
pub const JOURNAL_COMPACTION_BYTES: u64 = 4 << 20;
/// Bytes of one journal frame; a longer one on disk is damage.
pub const JOURNAL_FRAME_BYTES_MAX: usize = 64 << 20;
/// Messages waiting for the agent's decision loop.
pub const INBOX_MAX: usize = 1_024;
/// Batches of actions waiting for the disk.
pub const ACTIONS_WAITING_MAX: usize = 1_024;
/// Messages waiting to go to the leader.
pub const OUTBOX_MAX: usize = 256;
/// MiB of a GPU's memory that may be in use when it is given to a task: what the driver itself takes stays below.
pub const GPU_MEMORY_FREE_MIB_MAX: u64 = 512;
/// How long a GPU's memory is waited for before the GPU counts as unfit, in milliseconds: NVIDIA's resiliency extension
/// waits as long.
pub const GPU_MEMORY_WAIT_MS_MAX: u64 = 50_000;
/// Between two looks at it.
pub const GPU_MEMORY_POLL: Duration = Duration::from_secs(2);
/// Lines of a simulated GPU's timeline.
pub const TIMELINE_LINES_MAX: usize = 100_000;
/// Injected faults waiting for the simulated GPUs.
pub const INJECTIONS_WAITING_MAX: usize = 64;
/// Bytes of one message between leader and worker: a desired state of `TASKS_PER_HOST_MAX` tasks.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Between two beats that carry the whole state although nothing changed, in beats.
pub const BEATS_PER_STATUS: u64 = 12;
/// Sent beats whose time is remembered for measuring the round trip.
pub const BEATS_MEASURED_MAX: usize = 64;
/// How often the agent looks at its clock.
pub const AGENT_TICK: Duration = Duration::from_millis(500);
/// Between two rounds of forgetting old logs.
pub const RETENTION_INTERVAL: Duration = Duration::from_secs(60);
/// Between two attempts to write to a disk that refuses the journal.
pub const JOURNAL_RETRY: Duration = Duration::from_millis(500);
