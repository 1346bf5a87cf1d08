//! Every limit of a supervisor, with its reason.

use std::time::Duration;

use muster_model::timings::KILL_MS_MAX;

/// Bytes of one line on a task's control socket.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// Bytes of one line from an agent: the hosts of the largest gang (`TASKS_PER_GANG_MAX`) with addresses of 255 bytes fit twice.
pub const AGENT_LINE_BYTES_MAX: usize = 16 << 20;
/// Bytes waiting to be read by the other side of such a socket before it is hung up on.
pub const UNREAD_BYTES_MAX: usize = 256 << 10;
/// Bytes that are read of one connection at a time, so that a task that writes without end holds up neither others nor the
/// supervisor's clock.
pub const READ_AT_ONCE_BYTES_MAX: usize = 64 << 10;
/// Requests of one connection of a task that are heard at a time, for the same reason: each is answered by a system call of a
/// few microseconds, so as many of every connection take less than a tenth of `LEASE_TICK`.
pub const REQUESTS_AT_ONCE_MAX: usize = 256;
/// Rounds of hearing what a task said before its end: its sockets hold less, and others may go on to connect.
pub const LAST_ROUNDS_MAX: usize = 32;
/// Bytes of one secret: a key, a token, a certificate with its chain.
pub const SECRET_BYTES_MAX: usize = 64 << 10;
/// Bytes of the file with the logins at registries.
pub const REGISTRY_AUTH_BYTES_MAX: u64 = 1 << 20;
/// Connections of a task to its control socket at a time.
pub const CONTROL_CONNECTIONS_MAX: usize = 32;
/// Connections that are taken from one socket at a time: who connects and hangs up without end holds up nobody else.
pub const CONNECTS_AT_ONCE_MAX: usize = 32;
/// Bytes of one segment of a log.
pub const LOG_SEGMENT_BYTES: u64 = 8 << 20;
/// Segments kept of one log: a task that prints without end holds 64 MiB of disk, its newest output.
pub const LOG_SEGMENTS_MAX: usize = 8;
/// Records of arrival in one segment, 1 MiB of them: a segment with more ends early.
pub const ARRIVAL_RECORDS_MAX: u64 = 65_536;
/// What one output prints within so many microseconds has one instant of arrival.
pub const ARRIVAL_RESOLUTION_US: u64 = 2_000;
/// How long a supervisor waits for the last look at the checkpoint directory (it may hang).
pub const CHECKPOINT_LAST_SCAN_MAX: Duration = Duration::from_secs(2);
/// Entries of a checkpoint directory that one scan looks at.
pub const CHECKPOINT_ENTRIES_MAX: usize = 10_000;
/// Commits waiting for the disk in one supervisor.
pub const COMMITS_WAITING_MAX: usize = 64;
/// How long a supervisor waits for the flag file (its disk may hang) before it signals its task to stop.
pub const PREEMPT_FLAG_MS_MAX: u64 = 500;
/// How long a supervisor waits for the last output to reach the disk (it may hang).
pub const LOG_DRAIN_MAX: Duration = Duration::from_secs(5);
/// How often a supervisor looks at its clock while nothing happens: after a suspend, the lease is checked
/// this late at most.
pub const LEASE_TICK: Duration = Duration::from_millis(500);
/// How old a task gets before its process is put on record and its checkpoint folder is watched, in milliseconds: each
/// takes a thread, and most short tasks end before. Until then the task's main process dies with its supervisor, and
/// the agent has not been told that it runs.
pub const QUICK_TASK_MS_MAX: u64 = 50;
/// How long killing a task may take before its agent is told that it cannot be killed, in milliseconds: what a lease sets aside
/// for killing (`core/model/src/timings.rs`).
pub const UNKILLABLE_MS: u64 = KILL_MS_MAX;
/// Pause between two attempts to kill what is left of a task, at first.
pub const KILL_RETRY: Duration = Duration::from_millis(5);
/// Attempts with such a pause, half a second of them: what is left then may hang in the kernel for days, and each attempt
/// looks at every process of the host. The pauses double from there to `LEASE_TICK`, at which the guard wants to see life.
pub const KILL_RETRIES_QUICK: u32 = 100;
/// How long a supervisor whose task is over tries to write down how it ended, in milliseconds, while no agent is
/// there to be told: a full disk may be cleared within a working day.
pub const EXIT_RECORD_MS_MAX: u64 = 8 * 3_600 * 1_000;
/// Bytes of a task's last output, of each stream, that are looked through for what tells of its end.
pub const EVIDENCE_BYTES: usize = 64 << 10;
/// Bytes of a launcher's error file: a longer one is not read.
pub const ERROR_FILE_BYTES_MAX: u64 = 64 << 10;
/// Between two steps that an agent is told of, in milliseconds: a task may say every one.
pub const PROGRESS_TOLD_MS: u64 = 10_000;
/// Checkpoints that a task may be writing at a time, as far as their time is taken.
pub const SAVES_BEGUN_MAX: usize = 16;
/// Longest time between SIGTERM and the kill of a task that was asked to stop before, in milliseconds; a quarter of its
/// grace where that is less.
pub const TERMINATE_LEAD_MS_MAX: u64 = 10_000;
/// How far past its task's deadline a supervisor may be before whoever guards it takes it for frozen and kills it, in
/// milliseconds: within the time that the shortest lease sets aside for killing.
pub const SUPERVISOR_OVERDUE_MS_MAX: u64 = 700;
/// How long a supervisor may not have looked at its clock before its guard takes it for frozen, in milliseconds: it looks
/// every `LEASE_TICK`.
pub const SUPERVISOR_SILENT_MS_MAX: u64 = 600;
/// Supervisors that one server guards.
pub const GUARDED_MAX: usize = muster_model::limits::TASKS_PER_HOST_MAX;
/// Tasks that one supervisor supervises one after the other: should one leave a little memory behind, it is not for ever.
pub const TASKS_PER_SUPERVISOR_MAX: u32 = 1_000;
/// Bytes of a request for a command beside a task: the longest that a replica takes (256 KiB, `EXEC_OPEN_BYTES_MAX`) has so many in
/// JSON if all its words are empty. One message of a socket may have 416 KiB, where the kernel's limits are its defaults.
pub const EXEC_REQUEST_BYTES_MAX: usize = 384 << 10;
/// Bytes of the words with which one is refused: they name its program, which may be as long as the request.
pub const EXEC_REFUSAL_BYTES_MAX: usize = 4 << 10;
/// Bytes of the answer to one: such words fit, however many more bytes they have in JSON.
pub const EXEC_ANSWER_BYTES_MAX: usize = 64 << 10;
/// Commands that users run beside one task at a time.
pub const EXEC_SESSIONS_MAX: usize = 4;
/// How long such a command has to end after its user went away before it is killed, in milliseconds.
pub const EXEC_HANGUP_MS: u64 = 900;
/// How long such a command in a container has to end then, in milliseconds: who stands in for it must have killed it before
/// being killed in turn, after `EXEC_HANGUP_MS`.
pub const EXEC_HANGUP_INSIDE_MS: u64 = 500;
/// How long a supervisor whose task is over waits until users were told how their commands ended.
pub const EXEC_ANSWER_MAX: Duration = Duration::from_millis(500);
/// How long one waits for others to begin or to cease to use an attempt's shared memory, in milliseconds: they do so within a
/// start, which takes some tens, and nothing slow is done meanwhile.
pub const SHARED_MEMORY_TURN_MS_MAX: u64 = 2_000;
