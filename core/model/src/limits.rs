//! Every limit of the product, with its name, its default and its reason.
//!
//! An error that rejects something for its size states the limit's name and value.

/// Tasks in one job, over all its groups. An array of a million is one record; 10^9 is a typing error.
pub const TASKS_PER_JOB_MAX: u64 = 1_000_000;
/// Tasks in one gang: a decision about it is one log entry, which must stay small enough to replicate.
pub const TASKS_PER_GANG_MAX: u64 = 16_384;
/// Task groups (roles) in one job.
pub const GROUPS_PER_JOB_MAX: usize = 64;
/// Approximate encoded bytes of one job specification: its texts plus a few bytes for each.
pub const SPEC_BYTES_MAX: usize = 1 << 20;
/// Encoded bytes of a queue tree or of a topology: each travels as one message, and gRPC accepts 4 MiB by
/// default. 100,000 hosts with names of 25 bytes fit.
pub const CONFIGURATION_BYTES_MAX: usize = 3 << 20;
/// Bytes of a name (job, group, queue, host, user): the length of a DNS name.
pub const NAME_BYTES_MAX: usize = 253;
/// Bytes of a reason, a message or another free text that an operator or a worker writes.
pub const TEXT_BYTES_MAX: usize = 4_096;
/// Arguments of one command line.
pub const COMMAND_ARGUMENTS_MAX: usize = 4_096;
/// Variables in one task group's environment.
pub const ENVIRONMENT_VARIABLES_MAX: usize = 1_024;
/// Secrets that one task group may name.
pub const SECRETS_PER_GROUP_MAX: usize = 64;
/// Highest limit on processes and threads of a task: Linux has no more process ids.
pub const PIDS_PER_TASK_MAX: u32 = 1 << 22;
/// Labels on a job or a host.
pub const LABELS_MAX: usize = 64;
/// GPUs that one task may request: those of the largest host.
pub const GPUS_PER_TASK_MAX: u32 = 128;
/// Memory that one task may request, in MiB: 1 PiB, more than any host has. Multiplied by the tasks of a job
/// it does not overflow.
pub const MEMORY_MIB_PER_TASK_MAX: u64 = 1 << 30;
/// GPUs that one host may report: a 72-GPU domain fits, and a mask with one bit for each fits into 128 bits.
pub const GPUS_PER_HOST_MAX: usize = 128;
/// Levels of cells, `host` and `gpu` included.
pub const CELL_LEVELS_MAX: usize = 12;
/// Hosts whose ignored topology reports produce an event, per change of the tree of cells.
pub const HOSTS_REPORTED_MAX: usize = 64;
/// Attempts whose owners are notified of a GPU that computes wrong results.
pub const DOUBTED_REPORTED_MAX: usize = 1_024;
/// Hosts in one cluster.
pub const HOSTS_MAX: usize = 100_000;
/// Queues in one cluster.
pub const QUEUES_MAX: usize = 10_000;
/// Users with a role.
pub const USERS_MAX: usize = 10_000;
/// Queues to which one user's role can be restricted.
pub const QUEUES_PER_USER_MAX: usize = 64;
/// Existing join tokens.
pub const JOIN_TOKENS_MAX: usize = 1_000;
/// Workers that one join token may admit: the maximum number of hosts.
pub const JOIN_TOKEN_USES_MAX: u32 = 100_000;
/// Longest lifetime of a join token: thirty days.
pub const JOIN_TOKEN_MS_MAX: u64 = 30 * 86_400_000;
/// Users of one queue whose past usage is remembered; beyond it, those with the least usage and no allocation
/// are dropped.
pub const USER_HISTORIES_MAX: usize = 4_096;
/// Levels of queues.
pub const QUEUE_DEPTH_MAX: usize = 8;
/// Weight of a queue.
pub const QUEUE_WEIGHT_MAX: u32 = 1_000_000;
/// Simultaneous claims: reservations and preemptions in progress.
pub const CLAIMS_MAX: usize = 1_024;
/// Attempts that one claim may preempt.
pub const VICTIMS_PER_CLAIM_MAX: usize = 16_384;
/// Units that may be moved for one claim: a solution found by trial is retried without each of them.
pub const MOVES_PER_CLAIM_MAX: u32 = 64;
/// Units in motion at a time; each has a claim.
pub const MOVES_IN_FLIGHT_MAX: u32 = 512;
/// Longest time limit of a job, protection of a queue's work or assembly of a gang: one year.
pub const PERIOD_MS_MAX: u64 = 31_536_000_000;
/// Hosts that one job may allow, and also the number that it may exclude.
pub const HOSTS_NAMED_PER_JOB_MAX: usize = 16_384;
/// GPUs that one task group may allow.
pub const GPUS_NAMED_PER_GROUP_MAX: usize = 16_384;
/// Unfinished jobs of one queue.
pub const LIVE_JOBS_PER_QUEUE_MAX: u64 = 1_000_000;
/// Retries that a job may request after failures of its own.
pub const RETRIES_MAX: u32 = 1_000;
/// Priority is within plus or minus this.
pub const PRIORITY_MAX: i32 = 1_000_000;
/// Longest grace between the request to stop and the kill of a task: one hour.
pub const STOP_GRACE_MS_MAX: u64 = 3_600_000;
/// Longest `partition_grace`: one day.
pub const PARTITION_GRACE_MS_MAX: u64 = 86_400_000;
/// Shortest `partition_grace`: a worker must be able to fence itself within it, even with a frozen
/// supervisor. `Timings::partition_grace_ms_min` is the minimum for a cluster's heartbeat period.
pub const PARTITION_GRACE_MS_MIN: u64 = 5_000;
/// Maximum length of the detail of a stop: it holds the author and the beginning of the reason. It is stored
/// with every attempt that stops: a cancelled array of 100,000 units stores 50 MiB of it.
pub const STOP_DETAIL_BYTES_MAX: usize = 512;
/// Events kept for watches that resume and for job histories; a watch from a dropped event returns
/// `OUT_OF_RANGE`.
pub const EVENTS_KEPT_MAX: usize = 200_000;
/// The newest of them are kept whatever their job: a watch of everything resumes within them. Half: the other
/// half holds the complete histories of at least a hundred jobs (`EVENTS_PER_JOB_SHARE`), or of ten thousand small
/// ones.
pub const EVENTS_RECENT_MAX: usize = 100_000;
/// Of the others, jobs with more events than this lose their oldest before any other job loses one: about as
/// many as a gang of 64 produces in five attempts.
pub const EVENTS_PER_JOB_SHARE: usize = 1_000;
/// Jobs with a mark up to where their events were dropped; beyond it the oldest events of all jobs are
/// dropped instead. Marked jobs have about one share each, so there are about a hundred in practice.
pub const EVENT_MARKS_MAX: usize = 1_000;
/// Responses stored under their request ids: a day at 115 requests a second, about 2 GiB of memory.
pub const REQUESTS_KEPT_MAX: usize = 10_000_000;
/// Of these, the part that users' requests may occupy: the rest is for administrators, so that they can
/// remove a user who fills it.
pub const REQUESTS_OF_USERS_MAX: usize = REQUESTS_KEPT_MAX / 10 * 9;
/// Retention of a response under its request id: 24 hours.
pub const REQUEST_KEPT_MS: u64 = 86_400_000;
/// Retention of a finished job: seven days.
pub const FINISHED_JOB_KEPT_MS: u64 = 7 * 86_400_000;
/// Finished jobs kept, whatever their age.
pub const FINISHED_JOBS_KEPT_MAX: usize = 500_000;
/// Records pruned by one command, so that no single apply takes long.
pub const PRUNED_PER_COMMAND_MAX: usize = 64;
/// Committed checkpoints remembered per job, newest last.
pub const CHECKPOINTS_PER_JOB_MAX: usize = 16;
/// Newest checkpoints of a unit that are never removed: the last one may be damaged.
pub const CHECKPOINTS_KEPT_MIN: u32 = 2;
/// Checkpoints of one task reported by its worker at a time, the newest ones: more between two heartbeats are
/// not worth their bytes.
pub const CHECKPOINTS_REPORTED_MAX: usize = 16;
/// Checkpoints that one attempt may report as unreadable: no more than are remembered can be offered to it.
pub const DAMAGED_REPORTED_MAX: usize = CHECKPOINTS_PER_JOB_MAX;
/// Past attempts remembered per unit, newest last.
pub const ATTEMPTS_KEPT_PER_UNIT_MAX: usize = 8;
/// Pauses of an attempt that are recorded individually: beyond it the oldest are merged.
pub const PAUSES_PER_ATTEMPT_MAX: usize = 16;
/// Longest back-off between two attempts of a failing unit: one hour.
pub const BACKOFF_MS_MAX: u64 = 3_600_000;
/// Consecutive start errors after which a unit fails: a typing error in a command must not loop.
pub const START_ERRORS_MAX: usize = 5;
/// The same if a file named by the job was missing each time, on several hosts or on the only one that is up:
/// the name is wrong rather than the file missing.
pub const MISSING_FILE_STARTS_MAX: usize = 3;
/// The same if all start errors were on one host while there are others: the host is to blame, but a loop
/// must end. At most the number of remembered attempts.
pub const START_ERRORS_OF_ONE_HOST_MAX: usize = ATTEMPTS_KEPT_PER_UNIT_MAX;
/// Delay after the first attempt that ended before it ran; doubled for each further one in a row.
pub const START_BACKOFF_MS: u64 = 1_000;
/// An attempt that ran for less than this and saved nothing made no progress: ten seconds.
pub const NO_PROGRESS_MS_MAX: u64 = 10_000;
/// Delay after the second consecutive attempt without progress that was not charged to the job; doubled for
/// each further one.
pub const NO_PROGRESS_BACKOFF_MS: u64 = 1_000;
/// Longest such delay: one minute.
pub const NO_PROGRESS_BACKOFF_MS_MAX: u64 = 60_000;
/// Ends within a day, without a newer checkpoint, that are not charged to the job although only the output of
/// its tasks suggests another cause; further ones are charged to it (Slurm's `max_batch_requeue`: 5).
pub const UNCHARGED_ENDS_PER_DAY_MAX: usize = 5;
/// Longest grace of tasks that cannot continue anyway (a GPU or a member of their gang is lost): short,
/// because a gang must be placed again within five seconds of the fault.
pub const LOST_GANG_GRACE_MS_MAX: u64 = 2_000;
/// Time from placement until all members of a gang with a barrier must run, where the job sets no limit
/// itself (`assembly_ms_max`): longer than the pull of a large image takes, short enough that one hanging
/// host does not hold the GPUs of a thousand others.
pub const ASSEMBLY_MS_MAX: u64 = 1_800_000;
/// Time that a place in a running gang may be vacant before the whole gang is restarted: two minutes, about
/// the time to place a large gang and to load its checkpoint. A longer wait costs more than a restart.
pub const VACANCY_MS_MAX: u64 = 120_000;
/// Consecutive swaps in one attempt without progress (no newer checkpoint, and less than `SWAP_ROW_MS`
/// between one swap and the next vacancy); the next loss restarts the whole gang.
pub const SWAPS_IN_A_ROW_MAX: u32 = 3;
/// Run time after a swap that counts as progress of the gang, with or without a checkpoint: ten minutes.
pub const SWAP_ROW_MS: u64 = 600_000;
/// Gangs with a vacancy considered per planning round; the rest follow in the next.
pub const VACANCIES_PER_ROUND_MAX: usize = 1_024;
/// Gangs released by a leader in one batch; the rest follow in the next.
pub const RELEASES_PER_BATCH_MAX: usize = 1_024;
/// Unchanged units that one placement may skip (those before it were rejected in the same batch).
pub const UNITS_SKIPPED_MAX: u32 = 4_096;
/// Blocks removed by one `ExpireBlocks`.
pub const BLOCKS_EXPIRED_PER_COMMAND_MAX: usize = 1_024;
/// Tasks in one desired state; a task with long texts counts as several
/// ([`TaskGroup::places`](crate::spec::TaskGroup::places)).
pub const TASKS_PER_HOST_MAX: usize = 4_096;
/// Bytes of command, environment and similar texts for which a task counts as one of `TASKS_PER_HOST_MAX`:
/// the maximum number takes 48 MiB, which leaves a quarter of `WORKER_MESSAGE_BYTES_MAX` for everything else.
pub const TASK_TEXT_BYTES: usize = 12 << 10;
/// Bytes of one message between leader and worker: a desired state of `TASKS_PER_HOST_MAX` tasks.
pub const WORKER_MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Dependencies of one job.
pub const DEPENDENCIES_MAX: usize = 64;
/// Unfinished dependents of one job: its end changes all of them in one step.
pub const DEPENDENTS_MAX: usize = 10_000;
/// Jobs of one pipeline: all of them are accepted in one step.
pub const PIPELINE_JOBS_MAX: usize = 256;
/// Approximate encoded bytes of a pipeline: it travels as one message, and gRPC accepts 4 MiB by default.
pub const PIPELINE_BYTES_MAX: usize = 3 << 20;
/// Exit rules of one job.
pub const EXIT_RULES_MAX: usize = 32;
/// Consecutive retries in place that a job may request: there is no delay between them.
pub const LOCAL_RETRIES_MAX: u32 = 16;
/// Consecutive unreadable checkpoints that a job may tolerate: good ones must remain among those remembered.
pub const BAD_CHECKPOINTS_MAX: u32 = 8;
/// Checkpoints of a unit that a worker is asked to remove at a time, newest last: more are left on disk.
pub const REMOVALS_PER_UNIT_MAX: usize = 16;
/// Consecutive attempts without a newer checkpoint that a job may allow.
pub const ATTEMPTS_WITHOUT_PROGRESS_MAX: u32 = 1_000;
/// Host directories and files mounted into one container, besides those of the task contract.
pub const MOUNTS_MAX: usize = 64;
/// Largest `/dev/shm` of a container in MiB: 16 TiB, more than a host has.
pub const SHM_MIB_MAX: u64 = 16 << 20;

/// Truncates a text to `TEXT_BYTES_MAX` at a character boundary: for texts of workers, which cannot be
/// rejected for their length.
#[must_use]
pub fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}
