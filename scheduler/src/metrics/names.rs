//! Every metric of this crate with its help text.

use metrics::{describe_counter, describe_gauge, describe_histogram};

/// Declares metric names and one function that describes them all.
macro_rules! metrics {
    ($($describe:ident $name:ident = $text:literal: $help:literal;)*) => {
        $(#[doc = $help] pub(crate) const $name: &str = $text;)*

        /// Gives every metric its help text.
        pub(crate) fn describe() {
            $($describe!($name, $help);)*
        }
    };
}

/// Blocked GPUs one by one: see `lists`.
pub(crate) const GPU_BLOCKED: &str = "muster_scheduler_gpu_blocked";
/// Help text.
pub(crate) const GPU_BLOCKED_HELP: &str = "1 for each GPU that is out of placement, by UUID, host, \
    blocking rule, and source (auto, admin).";
/// Pools and their breakers: see `lists`.
pub(crate) const BREAKERS_TRIPPED: &str = "muster_scheduler_breakers_tripped";
/// Help text.
pub(crate) const BREAKERS_TRIPPED_HELP: &str =
    "1 for each pool whose breaker is tripped, so that rules cannot block more; else 0.";
/// Unfinished jobs: see `queues`.
pub(crate) const QUEUE_LIVE_JOBS: &str = "muster_scheduler_queue_live_jobs";
/// Help text.
pub(crate) const QUEUE_LIVE_JOBS_HELP: &str = "Unfinished jobs, by queue.";
/// GPUs of queues: see `queues`.
pub(crate) const QUEUE_GPUS: &str = "muster_scheduler_queue_gpus";
/// Help text.
pub(crate) const QUEUE_GPUS_HELP: &str = "GPUs by queue, including its child queues: guaranteed, held, \
    opportunistic (a part of held), or claimed.";
/// Waiting jobs: see `queues`.
pub(crate) const OLDEST_WAIT_SECONDS: &str = "muster_scheduler_oldest_wait_seconds";
/// Help text.
pub(crate) const OLDEST_WAIT_SECONDS_HELP: &str = "Time since the submission of the oldest eligible job \
    that has never run, by the outermost queue; 0 if none waits.";

metrics! {
    describe_gauge LEADERSHIP_EPOCH = "muster_scheduler_leadership_epoch":
        "Fencing token of this replica's newest leadership.";
    describe_gauge REVISION = "muster_scheduler_revision": "Revision of the applied state.";
    describe_gauge JOBS = "muster_scheduler_jobs": "Jobs in the state by phase.";
    describe_gauge JOBS_SUSPENDED = "muster_scheduler_jobs_suspended": "Suspended jobs.";
    describe_gauge JOBS_WAITING = "muster_scheduler_jobs_waiting":
        "Jobs left waiting by the newest planning round, by their first reason.";
    describe_gauge HOSTS = "muster_scheduler_hosts": "Hosts by health.";
    describe_gauge HOSTS_BLOCKED = "muster_scheduler_hosts_blocked": "Hosts out of placement by a block.";
    describe_gauge HOSTS_PLANNED = "muster_scheduler_hosts_planned": "Hosts with a scheduled block.";
    describe_gauge GPUS = "muster_scheduler_gpus":
        "GPUs by state: free, held, blocked, faulted, or unreachable with their host.";
    describe_gauge EVENTS_KEPT = "muster_scheduler_events_kept": "Events kept for watches that resume.";
    describe_gauge REQUESTS_KEPT = "muster_scheduler_requests_kept":
        "Answers kept for repeated requests.";
    describe_gauge WORKERS_CONNECTED = "muster_scheduler_workers_connected":
        "Workers whose stream this leader serves.";
    describe_counter LOST_GPU_SECONDS_TOTAL = "muster_scheduler_lost_gpu_seconds_total":
        "GPU-seconds not spent on kept work, by cause (first, preempt, infra, user, admin) and kind \
         (queue, restart, work).";
    describe_counter KEPT_GPU_SECONDS_TOTAL = "muster_scheduler_kept_gpu_seconds_total":
        "GPU-seconds of work that succeeded or is in a checkpoint.";
    describe_counter PAUSED_GPU_SECONDS_TOTAL = "muster_scheduler_paused_gpu_seconds_total":
        "GPU-seconds of attempts paused in place while their job was suspended.";
    describe_gauge HOST_FAILURE_SECONDS = "muster_scheduler_host_mean_time_to_failure_seconds":
        "Mean time between two infrastructure failures that end an attempt on one host, as far as known.";
    describe_counter PLACEMENTS_TOTAL = "muster_scheduler_placements_total":
        "Units whose allocation was committed while this replica led.";
    describe_histogram WAIT_SECONDS = "muster_scheduler_wait_seconds":
        "Waiting time of units placed while this replica led, since their submission or the end of their \
         previous attempt, by the outermost queue.";
    describe_counter GANGS_RELEASED_TOTAL = "muster_scheduler_gangs_released_total":
        "Gangs released from their barrier while this replica led.";
    describe_histogram GANG_START_SECONDS = "muster_scheduler_gang_start_seconds":
        "Time from a gang's placement until all its members ran, by the log's timestamps.";
    describe_counter ATTEMPTS_ATTRIBUTED_TOTAL = "muster_scheduler_attempts_attributed_total":
        "Attempts that failed while this replica led, by attributed class, charged party (charge), and \
         deciding rule (step).";
    describe_counter BLOCKS_TOTAL = "muster_scheduler_blocks_total":
        "Components taken out of placement by a rule while this replica led, by kind (gpu, host, nic) and rule.";
    describe_counter HEALTH_NOTES_TOTAL = "muster_scheduler_health_notes_total":
        "Health notifications to operators while this replica led: alert, refused, hold, repair, \
         incident, breaker, rules.";
    describe_gauge COMPONENTS = "muster_scheduler_components":
        "GPUs, adapters and hosts with a health record, by kind and phase.";
    describe_gauge STRIKES = "muster_scheduler_strikes":
        "Strikes of the last 30 days that still count, by kind of component.";
    describe_gauge HOLDS = "muster_scheduler_holds":
        "Holds on degraded components, by what they keep off (gangs, everything).";
    describe_counter UNBLOCKS_TOTAL = "muster_scheduler_unblocks_total":
        "Components that returned to placement while this replica led, by kind (gpu, host, nic) and \
         source: admin if an operator returned them or an operator's block ended, else auto.";
    describe_histogram DETECTION_SECONDS = "muster_scheduler_detection_seconds":
        "Time from a worker's finding (component degraded or broken) to its commit, by severity; measured \
         on the clocks of both hosts.";
    describe_gauge GPUS_BLOCKED = "muster_scheduler_gpus_blocked":
        "GPUs out of placement because of a block on them or their host, including held ones, by source (auto, admin).";
    describe_counter HEARTBEATS_TOTAL = "muster_scheduler_heartbeats_total":
        "Worker heartbeats received by this leader.";
    describe_histogram SILENCE_SECONDS = "muster_scheduler_silence_seconds":
        "Silence of a host when this leader declared it suspect or lost, by conclusion (suspect, lost) \
         and cause (silence; one_way: heartbeats arrive, acknowledgements do not).";
    describe_counter RETRIES_IN_PLACE_TOTAL = "muster_scheduler_retries_in_place_total":
        "Units restarted in place after a failure while this replica led.";
    describe_counter CLAIMS_TOTAL = "muster_scheduler_claims_total":
        "Claims committed while this replica led: reservations and preemptions.";
    describe_counter CLAIMS_DROPPED_TOTAL = "muster_scheduler_claims_dropped_total":
        "Claims dropped while this replica led.";
    describe_counter PREEMPTIONS_TOTAL = "muster_scheduler_preemptions_total":
        "Attempts preempted while this replica led.";
    describe_counter MOVES_TOTAL = "muster_scheduler_moves_total":
        "Attempts moved for defragmentation while this replica led.";
    describe_counter MOVES_LOST_GPU_SECONDS_TOTAL = "muster_scheduler_moves_lost_gpu_seconds_total":
        "GPU-seconds lost by such moves: work since the newest checkpoints, and restarts.";
    describe_counter PLANNED_TOTAL = "muster_scheduler_planned_total":
        "Placements that the planner proposed.";
    describe_counter PLAN_CUT_SHORT_TOTAL = "muster_scheduler_plan_cut_short_total":
        "Planning rounds cut short by their budget.";
    describe_histogram PLAN_SECONDS = "muster_scheduler_plan_seconds": "Time of one planning round, by \
        scope: whole, or in_place without a search for moves.";
    describe_histogram TURN_SECONDS = "muster_scheduler_turn_seconds":
        "Time of the phases of one turn of the leader: fork (a view of the state), changes (events since \
         then), dispatch (desired states to workers), inputs (their reports), reactions (decisions from \
         both), plan, propose, commit (from proposal to outcomes).";
    describe_histogram BATCH_COMMANDS = "muster_scheduler_batch_commands":
        "Commands that the leader proposed at once.";
    describe_counter REJECTED_TOTAL = "muster_scheduler_rejected_total":
        "Commands of the leader that were rejected.";
    describe_counter REPLICA_CHANGES_TOTAL = "muster_scheduler_replica_changes_total":
        "Membership changes by this leader, by outcome (done, failed).";
    describe_histogram SHADOW_SECONDS = "muster_scheduler_heartbeat_replication_seconds":
        "Time from the start of a replication round of heartbeat times until a majority has stored it.";
    describe_gauge HEARTBEAT_INTERVAL_SECONDS = "muster_scheduler_heartbeat_interval_seconds":
        "Heartbeat interval requested from workers by this leader; shorter for a worker with a short \
         lease on its host.";
    describe_histogram SUBMIT_SECONDS = "muster_scheduler_submit_seconds":
        "Time of a submission, from receipt to answer.";
    describe_counter AUDIT_FAILURES_TOTAL = "muster_scheduler_audit_failures_total":
        "Failed writes of this replica's audit log; their records are lost.";
    describe_gauge BACKUP_INTERVAL_SECONDS = "muster_scheduler_backup_interval_seconds":
        "Configured interval between two backups; 0 if none are taken.";
    describe_gauge BACKUP_LAST_TIMESTAMP_SECONDS = "muster_scheduler_backup_last_timestamp_seconds":
        "Time of the last good backup seen by this replica as leader, since the Unix epoch; 0 if there was none.";
    describe_counter BACKUPS_TOTAL = "muster_scheduler_backups_total":
        "Backups that this replica took as leader, by outcome (done, failed).";
    describe_histogram BACKUP_SECONDS = "muster_scheduler_backup_seconds":
        "Time of a backup: taken, written, synced and read back.";
    describe_counter REFUSED_TOTAL = "muster_scheduler_refused_total":
        "Calls refused because of the caller, by reason (NO_CREDENTIAL, BAD_TOKEN, UNKNOWN_USER, \
         USER_IS_LOCAL, ROLE_TOO_WEAK, TOO_MANY_CALLS, TOO_MANY_BYTES, BAD_JOIN_TOKEN).";
    describe_counter REQUESTS_TOTAL = "muster_scheduler_requests_total":
        "Calls by service, method and gRPC code: Ok for a stream that began, Cancelled if the caller did not wait.";
    describe_histogram REQUEST_SECONDS = "muster_scheduler_request_seconds":
        "Time of a call, from receipt to its answer or to the start of its stream, by service and method.";
    describe_counter PAST_VIEWS_TOTAL = "muster_scheduler_past_views_total":
        "Reads at a past revision, by outcome (shown, refused, busy, late, failed).";
    describe_histogram PAST_VIEW_SECONDS = "muster_scheduler_past_view_seconds":
        "Time to rebuild the state of a past revision from a snapshot and the log.";
    describe_gauge EXECS = "muster_scheduler_execs":
        "Exec sessions on this leader.";
    describe_counter EXECS_TOTAL = "muster_scheduler_execs_total":
        "Permitted exec requests of users to this leader.";
    describe_counter EXECS_REFUSED_TOTAL = "muster_scheduler_execs_refused_total":
        "Refused exec requests: not the user's task, or the task does not run.";
    describe_gauge WATCHES = "muster_scheduler_watches": "Open watches.";
    describe_counter WATCHES_SLOW_TOTAL = "muster_scheduler_watches_slow_total":
        "Watches ended because the client did not keep up.";
}
