//! Every limit of the product, with its name, its default and why it stands.
//!
//! An error that refuses something for its size states the limit's name and value.

/// Tasks in one job, over all its groups. An array of a million is one record; 10^9 is a typing error.
pub const TASKS_PER_JOB_MAX: u64 = 1_000_000;
/// Tasks in one gang: a decision about it is one log entry, which must stay small enough to replicate.
pub const TASKS_PER_GANG_MAX: u64 = 16_384;
/// Task groups (roles) in one job.
pub const GROUPS_PER_JOB_MAX: usize = 64;
/// Encoded bytes of one job specification, about: its texts with a few bytes for each.
pub const SPEC_BYTES_MAX: usize = 1 << 20;
/// Encoded bytes of a tree of queues or of a topology: each travels as one message, and gRPC takes 4 MiB by default.
/// 100,000 hosts with names of 25 bytes fit.
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
/// Processes and threads that a task may be limited to: the most that Linux has numbers for.
pub const PIDS_PER_TASK_MAX: u32 = 1 << 22;
/// Labels on a job or a host.
pub const LABELS_MAX: usize = 64;
/// GPUs that one task may ask for: those of the largest host.
pub const GPUS_PER_TASK_MAX: u32 = 128;
/// Memory that one task may ask for, in MiB: 1 PiB, more than any host has. Times the tasks of a job it fits a number.
pub const MEMORY_MIB_PER_TASK_MAX: u64 = 1 << 30;
/// GPUs that one host may report: a 72-GPU domain fits, and one bit each fits a machine word of 128 bits.
pub const GPUS_PER_HOST_MAX: usize = 128;
/// Levels of cells, `host` and `gpu` included.
pub const CELL_LEVELS_MAX: usize = 12;
/// Hosts of which one change of the tree of cells says in events that their workers' word does not count (any more).
pub const HOSTS_TOLD_MAX: usize = 64;
/// Attempts on a GPU that computes wrongly whose owners are told by events.
pub const DOUBTED_TOLD_MAX: usize = 1_024;
/// Hosts in one cluster.
pub const HOSTS_MAX: usize = 100_000;
/// Queues in one cluster.
pub const QUEUES_MAX: usize = 10_000;
/// Users with a role.
pub const USERS_MAX: usize = 10_000;
/// Queues that one user's role counts for.
pub const QUEUES_PER_USER_MAX: usize = 64;
/// Join tokens at a time.
pub const JOIN_TOKENS_MAX: usize = 1_000;
/// Workers that one join token may let in: as many as there may be hosts.
pub const JOIN_TOKEN_USES_MAX: u32 = 100_000;
/// Longest that a join token may count: thirty days.
pub const JOIN_TOKEN_MS_MAX: u64 = 30 * 86_400_000;
/// Users of one queue whose past use is remembered: beyond, those are forgotten that used the least and hold nothing.
pub const USER_HISTORIES_MAX: usize = 4_096;
/// Levels of queues.
pub const QUEUE_DEPTH_MAX: usize = 8;
/// Weight of a queue.
pub const QUEUE_WEIGHT_MAX: u32 = 1_000_000;
/// Units that hold a claim at a time: reservations and preemptions under way.
pub const CLAIMS_MAX: usize = 1_024;
/// Attempts that one claim may preempt.
pub const VICTIMS_PER_CLAIM_MAX: usize = 16_384;
/// Units that may be moved for one claim: what is found by trying is tried again without each of them.
pub const MOVES_PER_CLAIM_MAX: u32 = 64;
/// Units that may be on the move at a time; each has a claim.
pub const MOVES_IN_FLIGHT_MAX: u32 = 512;
/// Longest time limit of a job, protection of a queue's work or assembly of a gang: one year.
pub const PERIOD_MS_MAX: u64 = 31_536_000_000;
/// Hosts that one job may name to run on, and as many not to run on.
pub const HOSTS_NAMED_PER_JOB_MAX: usize = 16_384;
/// GPUs that one task group may name to run on.
pub const GPUS_NAMED_PER_GROUP_MAX: usize = 16_384;
/// Jobs of one queue that are not finished.
pub const LIVE_JOBS_PER_QUEUE_MAX: u64 = 1_000_000;
/// Retries that a job may ask for after failures of its own.
pub const RETRIES_MAX: u32 = 1_000;
/// Priority lies within plus or minus this.
pub const PRIORITY_MAX: i32 = 1_000_000;
/// Longest grace between asking a task to stop and killing it: one hour.
pub const STOP_GRACE_MS_MAX: u64 = 3_600_000;
/// Longest `partition_grace`: one day.
pub const PARTITION_GRACE_MS_MAX: u64 = 86_400_000;
/// Shortest `partition_grace`: a worker must be able to fence itself within it, also with a supervisor that
/// is frozen. `Timings::partition_grace_ms_min` is what a cluster's heartbeats ask for.
pub const PARTITION_GRACE_MS_MIN: u64 = 5_000;
/// Longest text about what speaks for an order to stop: who gave it fits in, and the first words of why. It is kept with every
/// attempt that stops: an array of 100,000 units that is cancelled keeps 50 MiB of it.
pub const STOP_DETAIL_BYTES_MAX: usize = 512;
/// Events kept for watches that resume and for jobs' stories; a watch of what was dropped answers `OUT_OF_RANGE`.
pub const EVENTS_KEPT_MAX: usize = 200_000;
/// The newest of them are kept whoever's they are: a watch of everything resumes within them. Half: what is left holds the whole
/// stories of at least a hundred jobs (`EVENTS_SHARE`), and of ten thousand small ones.
pub const EVENTS_RECENT_MAX: usize = 100_000;
/// Of the others, jobs that have more than this lose their oldest before any other job loses one: about what a gang of 64 tells
/// in five attempts.
pub const EVENTS_SHARE: usize = 1_000;
/// Jobs of which it is noted apart up to where their events were dropped; beyond it the oldest events of all are dropped
/// instead. Those who are noted have about a share each, so there are a hundred in practice.
pub const EVENT_MARKS_MAX: usize = 1_000;
/// Answers kept under their request ids: a day at 115 requests a second, about 2 GiB of memory.
pub const REQUESTS_KEPT_MAX: usize = 10_000_000;
/// Of these, those that users' requests may take: the rest is for administrators, who take a user out that fills them up.
pub const REQUESTS_OF_USERS_MAX: usize = REQUESTS_KEPT_MAX / 10 * 9;
/// How long an answer is kept under its request id: 24 hours.
pub const REQUEST_KEPT_MS: u64 = 86_400_000;
/// How long a finished job can be read: seven days.
pub const FINISHED_JOB_KEPT_MS: u64 = 7 * 86_400_000;
/// Finished jobs kept however young they are.
pub const FINISHED_JOBS_KEPT_MAX: usize = 500_000;
/// Things pruned by one command, so that no single apply is long.
pub const PRUNED_PER_COMMAND_MAX: usize = 64;
/// Committed checkpoints remembered per job, newest last.
pub const CHECKPOINTS_PER_JOB_MAX: usize = 16;
/// Newest checkpoints of a unit that are never removed: the last one may be damaged.
pub const CHECKPOINTS_KEPT_MIN: u32 = 2;
/// Checkpoints of one task that its worker tells of at a time, the newest ones: more between two beats are not worth
/// their bytes.
pub const CHECKPOINTS_TOLD_MAX: usize = 16;
/// Checkpoints that one attempt may say it could not read: more than are remembered cannot be offered to it.
pub const SPOILS_TOLD_MAX: usize = CHECKPOINTS_PER_JOB_MAX;
/// Past attempts remembered per unit, newest last.
pub const ATTEMPTS_KEPT_PER_UNIT_MAX: usize = 8;
/// Times at which an attempt stood still that are told apart: of more the oldest are added up.
pub const HALTS_PER_ATTEMPT_MAX: usize = 16;
/// Longest back-off between two attempts of a failing unit: one hour.
pub const BACKOFF_MS_MAX: u64 = 3_600_000;
/// Start errors in a row after which a unit fails: a typing error in a command must not loop.
pub const START_ERRORS_MAX: usize = 5;
/// The same where what the job names was not there each time, on hosts of which more than one was tried or only one is up: it is
/// mistyped rather than missing.
pub const STARTS_NOT_THERE_MAX: usize = 3;
/// The same for start errors that were all of one host while there are others: the host is to blame, but nothing may loop
/// for ever. No more than are remembered.
pub const START_ERRORS_OF_ONE_HOST_MAX: usize = ATTEMPTS_KEPT_PER_UNIT_MAX;
/// Wait after the first attempt that ended before it ran; doubled for every further one in a row.
pub const START_BACKOFF_MS: u64 = 1_000;
/// An attempt that ran for less than this and saved nothing got nowhere: ten seconds.
pub const NOWHERE_MS_MAX: u64 = 10_000;
/// Wait after the second attempt in a row that got nowhere at no cost of its job's; doubled for every further one.
pub const NOWHERE_BACKOFF_MS: u64 = 1_000;
/// Longest such wait: one minute.
pub const NOWHERE_BACKOFF_MS_MAX: u64 = 60_000;
/// Ends within a day, without a newer checkpoint, for which something else than a job pays although only what its tasks said
/// speaks for that: afterwards they are its own (Slurm's `max_batch_requeue`: 5).
pub const EXCUSES_PER_DAY_MAX: usize = 5;
/// Longest grace of tasks that cannot go on anyway (a GPU or a member of their gang is lost): short,
/// because a gang must be placed again within five seconds of the fault.
pub const BROKEN_GRACE_MS_MAX: u64 = 2_000;
/// How long the members of a gang that wait for each other may take from their placement until all run, where their job
/// sets no limit itself (`assembly_ms_max`): longer than a large image takes to be fetched, short enough that one host
/// that hangs does not keep the GPUs of a thousand others.
pub const ASSEMBLY_MS_MAX: u64 = 1_800_000;
/// How long a place in a running gang may be vacant before the gang is restarted whole: two minutes, about what a large gang
/// takes to be placed and to load its checkpoint again. What it waits longer for costs more than a restart.
pub const VACANCY_MS_MAX: u64 = 120_000;
/// Members of one attempt that may be swapped one after the other while it gets nowhere (no newer checkpoint, and less than
/// `SWAP_ROW_MS` between one swap and the next vacancy); the next loss restarts the gang whole.
pub const SWAPS_IN_A_ROW_MAX: u32 = 3;
/// A gang that went on for so long after a swap got somewhere, with or without a checkpoint: ten minutes.
pub const SWAP_ROW_MS: u64 = 600_000;
/// Gangs with a vacant place that one planning round looks at; the rest follow in the next.
pub const VACANCIES_PER_ROUND_MAX: usize = 1_024;
/// Gangs that a leader lets go in one batch; the rest follow in the next.
pub const RELEASES_PER_BATCH_MAX: usize = 1_024;
/// Untouched units that one placement may skip (those before it were refused in the same batch).
pub const UNITS_SKIPPED_MAX: u32 = 4_096;
/// Blocks that one `ExpireBlocks` lets go.
pub const BLOCKS_EXPIRED_PER_COMMAND_MAX: usize = 1_024;
/// Tasks that one desired state may carry to a worker; one with long texts counts as several
/// ([`TaskGroup::places`](crate::spec::TaskGroup::places)).
pub const TASKS_PER_HOST_MAX: usize = 4_096;
/// Bytes of command, environment and the like for which a task counts as one of `TASKS_PER_HOST_MAX`: what a worker is told of as
/// many is 48 MiB, and a quarter of `WORKER_MESSAGE_BYTES_MAX` is left for all else.
pub const TASK_TEXT_BYTES: usize = 12 << 10;
/// Bytes of one message between leader and worker: a desired state of `TASKS_PER_HOST_MAX` tasks.
pub const WORKER_MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Jobs that one job may wait for.
pub const DEPENDENCIES_MAX: usize = 64;
/// Unfinished jobs that may wait for one job: its end changes all of them in one step.
pub const DEPENDENTS_MAX: usize = 10_000;
/// Jobs of one pipeline: all of them are accepted in one step.
pub const PIPELINE_JOBS_MAX: usize = 256;
/// Encoded bytes of a pipeline, about: it travels as one message, and gRPC takes 4 MiB by default.
pub const PIPELINE_BYTES_MAX: usize = 3 << 20;
/// Rules of one job for the ends of its tasks.
pub const EXIT_RULES_MAX: usize = 32;
/// Times in a row that a job may ask to be begun again where it is: there is no pause between them.
pub const LOCAL_RETRIES_MAX: u32 = 16;
/// Checkpoints in a row that a job may allow itself to be unable to read: good ones must stay among those remembered.
pub const BAD_CHECKPOINTS_MAX: u32 = 8;
/// Checkpoints of a unit whose folders a worker is told to remove, newest last: more are left where they are.
pub const REMOVALS_TOLD_MAX: usize = 16;
/// Attempts in a row without a newer checkpoint that a job may allow itself.
pub const ATTEMPTS_WITHOUT_PROGRESS_MAX: u32 = 1_000;
/// Host folders and files that one container may see, beside those of the task contract.
pub const MOUNTS_MAX: usize = 64;
/// Largest `/dev/shm` of a container, in MiB: 16 TiB are more than a host has.
pub const SHM_MIB_MAX: u64 = 16 << 20;

/// A text cut to `TEXT_BYTES_MAX` at a character's boundary: for what workers say, which cannot be
/// refused for its length.
#[must_use]
pub fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}
