//! Limits of a supervisor, each with its reason.

use std::time::Duration;

use muster_model::timings::KILL_MS_MAX;

/// Maximum bytes of a line on a task's control socket.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of a line from an agent: twice the hosts of the largest gang (`TASKS_PER_GANG_MAX`) with
/// addresses of 255 bytes.
pub const AGENT_LINE_BYTES_MAX: usize = 16 << 20;
/// Unread output, in bytes, after which a peer of such a socket is disconnected.
pub const UNREAD_BYTES_MAX: usize = 256 << 10;
/// Bytes read from one connection per round, so that a task that writes endlessly delays neither others nor
/// the supervisor's clock.
pub const READ_AT_ONCE_BYTES_MAX: usize = 64 << 10;
/// Requests handled per round and connection of a task, for the same reason: each is answered by a system
/// call of a few microseconds, so as many of every connection take less than a tenth of `LEASE_TICK`.
pub const REQUESTS_AT_ONCE_MAX: usize = 256;
/// Rounds of reading what a task sent before its end: its sockets hold less, and new connections may keep
/// arriving.
pub const LAST_ROUNDS_MAX: usize = 32;
/// Maximum bytes of one secret: a key, a token, a certificate with its chain.
pub const SECRET_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of the file with registry logins.
pub const REGISTRY_AUTH_BYTES_MAX: u64 = 1 << 20;
/// Maximum simultaneous connections of a task to its control socket.
pub const CONTROL_CONNECTIONS_MAX: usize = 32;
/// Connections accepted from one socket per round: a client that endlessly connects and hangs up delays no
/// other.
pub const CONNECTS_AT_ONCE_MAX: usize = 32;
/// Size of one log segment in bytes.
pub const LOG_SEGMENT_BYTES: u64 = 8 << 20;
/// Segments kept of one log: a task that prints endlessly occupies 64 MiB of disk, its newest output.
pub const LOG_SEGMENTS_MAX: usize = 8;
/// Arrival records in one segment, 1 MiB in total: a segment with more ends early.
pub const ARRIVAL_RECORDS_MAX: u64 = 65_536;
/// Microseconds within which consecutive reads of one output share an arrival time.
pub const ARRIVAL_RESOLUTION_US: u64 = 2_000;
/// How long a supervisor waits for the last scan of the checkpoint directory (it may hang).
pub const CHECKPOINT_LAST_SCAN_MAX: Duration = Duration::from_secs(2);
/// Entries of a checkpoint directory that one scan reads.
pub const CHECKPOINT_ENTRIES_MAX: usize = 10_000;
/// Commits waiting for the disk in one supervisor.
pub const COMMITS_WAITING_MAX: usize = 64;
/// How long a supervisor waits for the flag file (its disk may hang) before it signals its task to stop.
pub const PREEMPT_FLAG_MS_MAX: u64 = 500;
/// How long a supervisor waits for the last output to reach the disk (it may hang).
pub const LOG_DRAIN_MAX: Duration = Duration::from_secs(5);
/// Longest interval between two clock checks of a supervisor: after a suspend, the lease is checked at most
/// this late.
pub const LEASE_TICK: Duration = Duration::from_millis(500);
/// Age, in milliseconds, at which a task's process is recorded and its checkpoint folder is watched: each
/// takes a thread, and most short tasks end before. Until then the task's main process dies with its
/// supervisor, and its start has not been reported to the agent.
pub const QUICK_TASK_MS_MAX: u64 = 50;
/// How long killing a task may take before it is reported to the agent as unkillable, in milliseconds: the
/// time that a lease reserves for killing (`core/model/src/timings.rs`).
pub const UNKILLABLE_MS: u64 = KILL_MS_MAX;
/// Initial pause between two attempts to kill what is left of a task.
pub const KILL_RETRY: Duration = Duration::from_millis(5);
/// Attempts with that pause, half a second in total: what is left then may be stuck in the kernel for days,
/// and each attempt scans every process of the host. From there the pauses double up to `LEASE_TICK`, the
/// rate at which the guard expects signs of life.
pub const KILL_RETRIES_QUICK: u32 = 100;
/// How long a supervisor whose task has ended keeps trying to record the exit, in milliseconds, while no
/// agent is connected: a full disk may be cleared within a working day.
pub const EXIT_RECORD_MS_MAX: u64 = 8 * 3_600 * 1_000;
/// Bytes of each stream's last output that are searched for evidence about the end of a task.
pub const EVIDENCE_BYTES: usize = 64 << 10;
/// Maximum bytes of a launcher's error file: a longer one is not read.
pub const ERROR_FILE_BYTES_MAX: u64 = 64 << 10;
/// Minimum interval between progress reports to an agent, in milliseconds: a task may report every step.
pub const PROGRESS_REPORT_INTERVAL_MS: u64 = 10_000;
/// Checkpoints being written for which a task's save time is measured.
pub const SAVES_BEGUN_MAX: usize = 16;
/// Longest time between SIGTERM and SIGKILL of a task that was asked to stop before, in milliseconds; a
/// quarter of its grace where that is less.
pub const TERMINATE_LEAD_MS_MAX: u64 = 10_000;
/// How far past its task's deadline a supervisor may be before its guard considers it frozen and kills it, in
/// milliseconds: within the time that the shortest lease reserves for killing.
pub const SUPERVISOR_OVERDUE_MS_MAX: u64 = 700;
/// How long a supervisor may not have checked its clock before its guard considers it frozen, in
/// milliseconds: it checks every `LEASE_TICK`.
pub const SUPERVISOR_SILENT_MS_MAX: u64 = 600;
/// Supervisors that one server guards.
pub const GUARDED_MAX: usize = muster_model::limits::TASKS_PER_HOST_MAX;
/// Tasks that one supervisor runs in sequence: a bound on leaked memory.
pub const TASKS_PER_SUPERVISOR_MAX: u32 = 1_000;
/// Maximum bytes of an exec request: the longest command that a replica accepts (256 KiB,
/// `EXEC_OPEN_BYTES_MAX`) has this size in JSON if all its words are empty. One message of a socket may have
/// 416 KiB with the kernel's default limits.
pub const EXEC_REQUEST_BYTES_MAX: usize = 384 << 10;
/// Maximum bytes of a refusal's message: it names its program, which may be as long as the request.
pub const EXEC_REFUSAL_BYTES_MAX: usize = 4 << 10;
/// Maximum bytes of the answer to a request: such a message fits, however much JSON escaping adds.
pub const EXEC_ANSWER_BYTES_MAX: usize = 64 << 10;
/// Simultaneous exec sessions of one task.
pub const EXEC_SESSIONS_MAX: usize = 4;
/// How long a command has to end after its user hung up before it is killed, in milliseconds.
pub const EXEC_HANGUP_MS: u64 = 900;
/// How long such a command in a container has to end, in milliseconds: its proxy must have killed it before
/// being killed in turn, after `EXEC_HANGUP_MS`.
pub const EXEC_HANGUP_INSIDE_MS: u64 = 500;
/// How long a supervisor whose task has ended waits until users were notified how their commands ended.
pub const EXEC_ANSWER_MAX: Duration = Duration::from_millis(500);
/// How long a task waits for others to start or stop using an attempt's shared memory, in milliseconds: they
/// do so during a start, which takes some tens of milliseconds, and nothing slow happens meanwhile.
pub const SHARED_MEMORY_TURN_MS_MAX: u64 = 2_000;
