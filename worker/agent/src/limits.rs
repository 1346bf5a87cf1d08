//! Every limit of a worker's agent, with its reason; its supervisors have their own.

use std::time::Duration;

use muster_model::limits::PARTITION_GRACE_MS_MIN;
use muster_model::timings::kill_ms;
use muster_supervisor::limits::{LEASE_TICK, SUPERVISOR_OVERDUE_MS_MAX};

/// Ended attempts whose logs are kept on a host, where its settings do not say.
pub const LOG_ATTEMPTS_KEPT_MAX: usize = 2_000;
/// Bytes that the logs of ended attempts may hold on a host, where its settings do not say.
pub const LOG_BYTES_KEPT_MAX: u64 = 8 << 30;
/// How long the logs of an ended attempt are kept, in milliseconds, where the host's settings do not say: two weeks.
pub const LOG_AGE_MS_MAX: u64 = 14 * 24 * 3_600 * 1_000;
/// Attempts of which a host remembers that their logs were removed.
pub const LOG_REMOVALS_REMEMBERED_MAX: usize = 10_000;
/// Bytes that logs of ended attempts may hold while they wait to be shipped, where the host's settings do not say.
pub const LOG_UNSHIPPED_BYTES_MAX: u64 = 32 << 30;
/// Segments of one output of a running task that wait to be shipped, where the host's settings do not say.
pub const LOG_UNSHIPPED_SEGMENTS_MAX: usize = 64;
/// How long the program that ships a segment may take, in milliseconds, where the host's settings do not say.
pub const LOG_SHIP_MS_MAX: u64 = 60_000;
/// Programs that ship segments at a time.
pub const LOG_SHIPPERS_MAX: usize = 4;
/// Between two looks for segments to ship.
pub const LOG_SHIP_INTERVAL: Duration = Duration::from_secs(2);
/// Wait before an output is tried again whose segment could not be shipped; doubled after every further failure.
pub const LOG_SHIP_RETRY: Duration = Duration::from_secs(2);
/// Longest such wait.
pub const LOG_SHIP_RETRY_MAX: Duration = Duration::from_secs(300);
/// Bytes of a line; a longer one is handed out in pieces.
pub const LOG_LINE_BYTES_MAX: usize = 64 << 10;
/// Lines in one message to the leader.
pub const LOG_LINES_MAX: usize = 1_024;
/// How long what a task printed without a line end waits for one before it is shown, in microseconds.
pub const LOG_PARTIAL_US_MAX: u64 = 200_000;
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
/// How long the agent tries to reach a supervisor that lives but has not opened its socket yet, and waits for its answer: all
/// leases wait for that.
pub const ADOPTION_MAX: Duration = Duration::from_secs(2);
/// Tasks whose directories are made or removed at a time: each takes a thread, and more only wait for the same disk.
pub const DIRECTORIES_AT_ONCE_MAX: usize = 8;
/// Scratch folders kept for the next tasks of those that did not use theirs: a block of the disk each.
pub const SCRATCH_FOLDERS_SPARE_MAX: usize = 256;
/// Empty checkpoint folders kept for the next tasks, one for a task and one for its job.
pub const CHECKPOINT_FOLDERS_SPARE_MAX: usize = 512;
/// Supervisors without a task that wait for the next one: less than a MiB each.
pub const SUPERVISORS_IDLE_MAX: usize = 64;
/// How long one waits at least before it is sent away, and at most twice as long.
pub const SUPERVISOR_IDLE: Duration = Duration::from_secs(1);
/// How long the agent waits for a supervisor to be forked before it starts one as a program.
pub const FORK_MAX: Duration = Duration::from_secs(2);
/// By how much a lease is pushed out at least, in milliseconds: beats may be acknowledged two hundred times a second, and each
/// extension wakes a supervisor.
pub const LEASE_EXTENSION_MS_MIN: u64 = 500;
/// Pause between two beats that are sent because something changed: what changes meanwhile goes with the next.
pub const STATUS_PAUSE: Duration = Duration::from_millis(5);
/// Tasks of a host from which on that pause grows in proportion: a beat tells of all of them, and so does the leader's answer, so
/// that what both cost a second stays what it is with as many.
pub const STATUS_PAUSE_TASKS: u32 = 32;
/// How long that pause grows at most.
pub const STATUS_PAUSE_MAX: Duration = Duration::from_millis(20);
/// Bytes of a data directory's path: a Unix socket's path has 107, ours need 50 behind it.
pub const DATA_DIRECTORY_BYTES_MAX: usize = 57;
/// Bytes of the journal before it is rewritten with what still matters.
pub const JOURNAL_COMPACTION_BYTES: u64 = 4 << 20;
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
/// How long the driver may take to answer one question, before whoever asks it is killed and replaced: its calls take seconds
/// where many processes use it, OpenPAI calls for people from 40 s on, and after two such silences the GPUs count as unfit.
pub const GPU_ANSWER_MAX: Duration = Duration::from_secs(60);
/// Questions about GPUs that wait for answers at a time; they fit into a pipe (64 KiB) that nobody reads.
pub const GPU_QUESTIONS_MAX: usize = 64;
/// Bytes of one question about GPUs, and of one answer.
pub const GPU_MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of one line that the process that asks the driver logs.
pub const GPU_HELPER_LOG_BYTES_MAX: u64 = 16 << 10;
/// How long a killed process that asked the driver is waited for: one that hangs in the kernel is not gone by then.
pub const GPU_HELPER_REAP_MAX: Duration = Duration::from_secs(2);
/// Lines of a simulated GPU's timeline.
pub const TIMELINE_LINES_MAX: usize = 100_000;
/// Injected faults waiting for the simulated GPUs.
pub const INJECTIONS_WAITING_MAX: usize = 64;
/// Between two beats that carry the whole state although nothing changed, in beats.
pub const BEATS_PER_STATUS: u64 = 12;
/// Sent beats whose time is remembered for measuring the round trip.
pub const BEATS_MEASURED_MAX: usize = 64;
/// Between two times that tasks are told that cannot be killed: 10 s.
pub const OWN_SIGNS_PERIOD_MS: u64 = 10_000;
/// How often the agent looks at its clock.
pub const AGENT_TICK: Duration = Duration::from_millis(500);
/// Between two rounds of forgetting old logs.
pub const RETENTION_INTERVAL: Duration = Duration::from_secs(60);
/// Between two attempts to write to a disk that refuses the journal.
pub const JOURNAL_RETRY: Duration = Duration::from_millis(500);
/// Commands that users run beside tasks of one host at a time.
pub const EXEC_SESSIONS_ON_HOST_MAX: usize = 16;
/// Bytes of the name of a command's program that the log shows.
pub const EXEC_PROGRAM_BYTES_SHOWN: usize = 256;
/// Bytes of one message with a command's output.
pub const EXEC_CHUNK_BYTES: usize = 16 << 10;
/// Messages of one command waiting to go to the leader.
pub const EXEC_MESSAGES_MAX: usize = 8;
/// How long a supervisor may take to open its socket for commands.
pub const EXEC_OPEN_MAX: Duration = Duration::from_secs(2);
/// How long the output of a command that has ended may be quiet before it is given up: what it left running may hold it open.
pub const EXEC_DRAIN_MAX: Duration = Duration::from_millis(500);
/// How long a leader may take to close the call of a command that has ended.
pub const EXEC_FAREWELL_MAX: Duration = Duration::from_secs(2);
/// Milliseconds between two readings of GPUs and of the host, where its settings do not say: the shortest that NVIDIA's own
/// tools use for these fields.
pub const HEALTH_SAMPLE_MS: u64 = 30_000;
/// Shared file systems that one worker watches.
pub const HEALTH_MOUNTS_MAX: usize = 64;
/// Memory that a host may be expected to have, in MiB: a pebibyte.
pub const HEALTH_EXPECTED_MEMORY_MIB_MAX: u64 = 1 << 30;
/// Speed that InfiniBand ports may be expected to have, in Gbit/s; the fastest of 2025 has 800 (XDR).
pub const HEALTH_EXPECTED_GBIT_PER_S_MAX: u64 = 10_000;
/// How long a shared file system may take to answer (gpud's limit).
pub const HEALTH_MOUNT_ANSWER_MAX: Duration = Duration::from_secs(5);
/// Between two looks at the board's own log: listing it keeps a slow controller busy.
pub const BOARD_LOG_PERIOD: Duration = Duration::from_mins(5);
/// How long a program may take to list the board's own log.
pub const BOARD_LOG_ANSWER_MAX: Duration = Duration::from_secs(60);
/// Between two tries to start a driver that did not: three of them are half a minute.
pub const DRIVER_START_PAUSE: Duration = Duration::from_secs(10);
/// How long systemd may take to tell of services.
pub const HEALTH_SERVICES_ANSWER_MAX: Duration = Duration::from_secs(10);
/// How often it is looked whether something is over because nothing of it was seen, and whether a driver still answers.
pub const HEALTH_TICK: Duration = Duration::from_secs(5);
/// How long an XID that the driver reports waits for the kernel's line about it, if a line tells more than the code: both are
/// written in the same moment.
pub const XID_DETAILS_WAIT: Duration = Duration::from_millis(500);
/// XIDs of the driver that wait while the watch over health is busy; beyond, the oldest is dropped.
pub const XIDS_WAITING_MAX: usize = 256;
/// How long a replica may take to answer with the health rules.
pub const HEALTH_RULES_ANSWER_MAX: Duration = Duration::from_secs(5);
/// Between two rounds of asking replicas for health rules that none had.
pub const HEALTH_RULES_PAUSE: Duration = Duration::from_secs(2);
/// Things that were seen and wait to be judged.
pub const HEALTH_SEEN_MAX: usize = 1_024;
/// Repairs and checks that wait to begin: one for each part of a host, and more.
pub const HEALTH_ORDERS_MAX: usize = 1_024;
/// Checks that a site may bring along.
pub const HEALTH_CHECKS_MAX: usize = 64;
/// Bytes of the name of one.
pub const HEALTH_CHECK_NAME_BYTES_MAX: usize = 64;
/// Increases of a counter that are remembered: a day of readings every 30 s.
pub const HEALTH_INCREASES_MAX: usize = 2_880;
/// Ports of network adapters that are watched.
pub const ADAPTER_PORTS_MAX: usize = 128;
/// How long NVIDIA's diagnostics of the second level may take: they take two minutes.
pub const HEALTH_DIAGNOSTIC_MAX: Duration = Duration::from_secs(600);
/// And those of the third: they take a quarter of an hour.
pub const HEALTH_LONG_DIAGNOSTIC_MAX: Duration = Duration::from_secs(2_400);
/// How long a site's own check of a GPU may take.
pub const HEALTH_ACTIVE_CHECK_MAX: Duration = Duration::from_secs(1_200);
/// Runs of the active check of one GPU, while a figure is too low and not yet often enough in a row.
pub const HEALTH_ACTIVE_CHECK_RUNS_MAX: u32 = 3;
/// How long a reset of a GPU may take.
pub const HEALTH_RESET_MAX: Duration = Duration::from_secs(180);
/// How long a service may take to start again: what systemd itself waits for its start by default.
pub const HEALTH_RESTART_MAX: Duration = Duration::from_secs(90);
/// Services that a site may name to be started again.
pub const HEALTH_RESTART_UNITS_MAX: usize = 16;
/// How long a host may take to go down once it is to boot.
pub const HEALTH_REBOOT_MAX: Duration = Duration::from_secs(600);
/// Bytes that are kept of what a program of health prints.
pub const PROGRAM_OUTPUT_BYTES_MAX: usize = 64 << 10;
/// How long the output of a program that has ended is read: what it left running may hold it open.
pub const PROGRAM_DRAIN_MAX: Duration = Duration::from_millis(500);
/// How long a program that was killed is waited for: one that hangs in the kernel never ends.
pub const PROGRAM_REAP_MAX: Duration = Duration::from_secs(2);
/// Bytes of one record of the kernel's log: what the kernel itself allows.
pub const KERNEL_LOG_RECORD_BYTES_MAX: usize = 8 << 10;
/// Between two looks at a kernel's log that had nothing new.
pub const KERNEL_LOG_POLL: Duration = Duration::from_millis(100);
/// Between two tries to open a kernel's log.
pub const KERNEL_LOG_RETRY: Duration = Duration::from_secs(5);
/// How far back a kernel's log counts that was never read before, in microseconds: two hours, as Azure's health checks look.
pub const KERNEL_LOG_LOOK_BACK_US_MAX: u64 = 2 * 3_600 * 1_000_000;
