//! Limits of a worker's agent, with their reasons; supervisors have limits of their own.

use std::time::Duration;

use muster_model::limits::PARTITION_GRACE_MS_MIN;
use muster_model::timings::kill_ms;
use muster_supervisor::limits::{LEASE_TICK, SUPERVISOR_OVERDUE_MS_MAX};

/// Default number of ended attempts whose logs are kept on a host.
pub const LOG_ATTEMPTS_KEPT_MAX: usize = 2_000;
/// Default number of bytes for logs of ended attempts on a host.
pub const LOG_BYTES_KEPT_MAX: u64 = 8 << 30;
/// Default age until which the logs of an ended attempt are kept, in milliseconds: two weeks.
pub const LOG_AGE_MS_MAX: u64 = 14 * 24 * 3_600 * 1_000;
/// Number of attempts for which a host records that their logs were removed.
pub const LOG_REMOVALS_REMEMBERED_MAX: usize = 10_000;
/// Default number of bytes of ended attempts' logs that wait to be shipped.
pub const LOG_UNSHIPPED_BYTES_MAX: u64 = 32 << 30;
/// Default number of segments of one output of a running task that wait to be shipped.
pub const LOG_UNSHIPPED_SEGMENTS_MAX: usize = 64;
/// Default timeout of the program that ships a segment, in milliseconds.
pub const LOG_SHIP_MS_MAX: u64 = 60_000;
/// Concurrent programs that ship segments.
pub const LOG_SHIPPERS_MAX: usize = 4;
/// Interval of the search for segments to ship.
pub const LOG_SHIP_INTERVAL: Duration = Duration::from_secs(2);
/// Initial backoff of an output whose segment could not be shipped; doubled after every further failure.
pub const LOG_SHIP_RETRY: Duration = Duration::from_secs(2);
/// Longest such backoff.
pub const LOG_SHIP_RETRY_MAX: Duration = Duration::from_secs(300);
/// Maximum length of a line in bytes; longer ones are split.
pub const LOG_LINE_BYTES_MAX: usize = 64 << 10;
/// Lines in one message to the leader.
pub const LOG_LINES_MAX: usize = 1_024;
/// Time that output without a line end waits for one before it is shown, in microseconds.
pub const LOG_PARTIAL_US_MAX: u64 = 200_000;
/// Bytes of output in one message to the leader.
pub const LOG_CHUNK_BYTES: usize = 64 << 10;
/// Concurrent requests for output in one session.
pub const LOG_REQUESTS_MAX: usize = 64;
/// Maximum number of lines in a request for the last lines: more is a download, which uses offsets.
pub const LOG_TAIL_LINES_MAX: u64 = 100_000;
/// Interval at which a followed log is polled.
pub const LOG_FOLLOW_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of the search for checkpoints that are registered only by files.
pub const CHECKPOINT_SCAN_INTERVAL: Duration = Duration::from_secs(1);
// The agent also checks for frozen supervisors every `LEASE_TICK`.
const _: () = assert!(
    SUPERVISOR_OVERDUE_MS_MAX as u128 + LEASE_TICK.as_millis()
        < kill_ms(PARTITION_GRACE_MS_MIN) as u128
);
/// Time that the agent tries to reach a live supervisor that has not opened its socket yet, and waits for
/// its answer: all leases wait for that.
pub const ADOPTION_MAX: Duration = Duration::from_secs(2);
/// Task directories that are created or removed concurrently: each takes a thread, and more would only wait
/// for the same disk.
pub const DIRECTORIES_AT_ONCE_MAX: usize = 8;
/// Unused scratch folders kept for later tasks: one disk block each.
pub const SCRATCH_FOLDERS_SPARE_MAX: usize = 256;
/// Empty checkpoint folders kept for later tasks, one for a task and one for its job.
pub const CHECKPOINT_FOLDERS_SPARE_MAX: usize = 512;
/// Idle supervisors that wait for another task: less than a MiB each.
pub const SUPERVISORS_IDLE_MAX: usize = 64;
/// Minimum time that one waits before it is ended; at most twice as long.
pub const SUPERVISOR_IDLE: Duration = Duration::from_secs(1);
/// Time that the agent waits for a supervisor to be forked before it starts one as a program.
pub const FORK_MAX: Duration = Duration::from_secs(2);
/// Minimum extension of a lease in milliseconds: heartbeats may be acknowledged two hundred times a second,
/// and each extension wakes a supervisor.
pub const LEASE_EXTENSION_MS_MIN: u64 = 500;
/// Minimum pause between heartbeats that are sent because of changes: changes in between go with the next
/// one.
pub const STATUS_PAUSE: Duration = Duration::from_millis(5);
/// Number of tasks of a host above which that pause grows in proportion: a heartbeat and its answer list
/// all tasks, so that their cost per second stays constant.
pub const STATUS_PAUSE_TASKS: u32 = 32;
/// Upper limit of that pause.
pub const STATUS_PAUSE_MAX: Duration = Duration::from_millis(20);
/// Maximum length of a data directory's path in bytes: the path of a Unix socket has up to 107, of which
/// ours need 50 below the directory.
pub const DATA_DIRECTORY_BYTES_MAX: usize = 57;
/// Size of the journal before it is rewritten with the records that still matter, in bytes.
pub const JOURNAL_COMPACTION_BYTES: u64 = 4 << 20;
/// Messages waiting for the agent's decision loop.
pub const INBOX_MAX: usize = 1_024;
/// Batches of actions waiting for the disk.
pub const ACTIONS_WAITING_MAX: usize = 1_024;
/// Messages waiting to go to the leader.
pub const OUTBOX_MAX: usize = 256;
/// Time to wait for a GPU's memory before the GPU counts as unfit, in milliseconds: that of NVIDIA's
/// resiliency extension.
pub const GPU_MEMORY_WAIT_MS_MAX: u64 = 50_000;
/// Heartbeats between two that carry the whole state although nothing changed.
pub const HEARTBEATS_PER_STATUS: u64 = 12;
/// Sent heartbeats whose time is kept to measure the round trip.
pub const HEARTBEATS_MEASURED_MAX: usize = 64;
/// Interval of reports about tasks that cannot be killed: 10 s.
pub const SELF_CHECK_PERIOD_MS: u64 = 10_000;
/// Tick interval of the agent.
pub const AGENT_TICK: Duration = Duration::from_millis(500);
/// Interval at which old logs are removed.
pub const RETENTION_INTERVAL: Duration = Duration::from_secs(60);
/// Pause between attempts to write the journal to a failing disk.
pub const JOURNAL_RETRY: Duration = Duration::from_millis(500);
/// Concurrent exec sessions on one host.
pub const EXEC_SESSIONS_ON_HOST_MAX: usize = 16;
/// Bytes of a command's program name in the log.
pub const EXEC_PROGRAM_BYTES_SHOWN: usize = 256;
/// Bytes of one message with a command's output.
pub const EXEC_CHUNK_BYTES: usize = 16 << 10;
/// Messages of one command waiting to go to the leader.
pub const EXEC_MESSAGES_MAX: usize = 8;
/// Timeout for a supervisor to open its exec socket.
pub const EXEC_OPEN_MAX: Duration = Duration::from_secs(2);
/// Time without output after which the output of an ended command is closed: processes that it left running
/// may hold it open.
pub const EXEC_DRAIN_MAX: Duration = Duration::from_millis(500);
/// Timeout for the leader to close the call of an ended command.
pub const EXEC_CLOSE_MAX: Duration = Duration::from_secs(2);
