//! Limits of the monitor, with their reasons.

use std::time::Duration;

/// Reports waiting for the agent.
pub const REPORTS_WAITING_MAX: usize = 1_024;
/// Changes of GPUs waiting for the agent.
pub const GPU_UPDATES_WAITING_MAX: usize = 1_024;
/// Memory of a GPU that may be in use when it is assigned to a task, in MiB: the driver's own use is below
/// that.
pub const GPU_MEMORY_FREE_MIB_MAX: u64 = 512;
/// Interval at which a GPU's memory is polled until it is free.
pub const GPU_MEMORY_POLL: Duration = Duration::from_secs(2);
/// Timeout of one driver request, after which the helper is killed and replaced: driver calls take seconds
/// if many processes use it, OpenPAI alerts operators from 40 s on, and after two such timeouts the GPUs
/// count as unfit.
pub const GPU_ANSWER_MAX: Duration = Duration::from_secs(60);
/// Pending requests about GPUs; they fit into the pipe (64 KiB) of a helper that does not read.
pub const GPU_QUESTIONS_MAX: usize = 64;
/// Bytes of one request about GPUs, and of one answer.
pub const GPU_MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of one line of the helper's log.
pub const GPU_HELPER_LOG_BYTES_MAX: u64 = 16 << 10;
/// Time to wait for a killed helper to be gone: one that hangs in the kernel is not gone by then.
pub const GPU_HELPER_REAP_MAX: Duration = Duration::from_secs(2);
/// Lines of a simulated GPU's timeline.
pub const TIMELINE_LINES_MAX: usize = 100_000;
/// Injected faults waiting for the simulated GPUs.
pub const INJECTIONS_WAITING_MAX: usize = 64;
/// Default interval between readings of GPUs and of the host, in milliseconds: the shortest that NVIDIA's
/// own tools use for these fields.
pub const HEALTH_SAMPLE_MS: u64 = 30_000;
/// Monitored shared file systems of one worker.
pub const HEALTH_MOUNTS_MAX: usize = 64;
/// Maximum of the expected memory of a host, in MiB: a pebibyte.
pub const HEALTH_EXPECTED_MEMORY_MIB_MAX: u64 = 1 << 30;
/// Maximum of the expected speed of InfiniBand ports, in Gbit/s; the fastest of 2025 has 800 (XDR).
pub const HEALTH_EXPECTED_GBIT_PER_S_MAX: u64 = 10_000;
/// Timeout for an answer of a shared file system (gpud's limit).
pub const HEALTH_MOUNT_ANSWER_MAX: Duration = Duration::from_secs(5);
/// Interval at which the board's event log is listed: listing it keeps a slow controller busy.
pub const BOARD_LOG_PERIOD: Duration = Duration::from_mins(5);
/// Timeout of the program that lists the board's event log.
pub const BOARD_LOG_ANSWER_MAX: Duration = Duration::from_secs(60);
/// Interval between attempts to start a driver that does not start: three of them are half a minute.
pub const DRIVER_START_PAUSE: Duration = Duration::from_secs(10);
/// Timeout of systemd's answer about services.
pub const HEALTH_SERVICES_ANSWER_MAX: Duration = Duration::from_secs(10);
/// Interval at which unobserved findings are cleared and the driver's silence is checked.
pub const HEALTH_TICK: Duration = Duration::from_secs(5);
/// Time that an XID from the driver waits for the kernel log line about it, if that line has more details
/// than the code: both are written at the same moment.
pub const XID_DETAILS_WAIT: Duration = Duration::from_millis(500);
/// XIDs of the driver that wait while the health monitor is busy; beyond, the oldest is dropped.
pub const XIDS_WAITING_MAX: usize = 256;
/// Timeout of a replica's answer with the health rules.
pub const HEALTH_RULES_ANSWER_MAX: Duration = Duration::from_secs(5);
/// Pause between rounds of requests to replicas for health rules.
pub const HEALTH_RULES_PAUSE: Duration = Duration::from_secs(2);
/// Observations that wait for evaluation.
pub const HEALTH_OBSERVATIONS_MAX: usize = 1_024;
/// Repairs and checks that wait to start: one for each part of a host, and more.
pub const HEALTH_ORDERS_MAX: usize = 1_024;
/// Checks defined by a site.
pub const HEALTH_CHECKS_MAX: usize = 64;
/// Bytes of the name of a check.
pub const HEALTH_CHECK_NAME_BYTES_MAX: usize = 64;
/// Increases kept of a counter: a day of readings every 30 s.
pub const HEALTH_INCREASES_MAX: usize = 2_880;
/// Monitored ports of network adapters.
pub const ADAPTER_PORTS_MAX: usize = 128;
/// Timeout of NVIDIA's diagnostics of level 2, which take two minutes.
pub const HEALTH_DIAGNOSTIC_MAX: Duration = Duration::from_secs(600);
/// Timeout of those of level 3, which take a quarter of an hour.
pub const HEALTH_LONG_DIAGNOSTIC_MAX: Duration = Duration::from_secs(2_400);
/// Timeout of a site's own check of a GPU.
pub const HEALTH_ACTIVE_CHECK_MAX: Duration = Duration::from_secs(1_200);
/// Runs of the active check of one GPU while a metric is too low but not often enough in a row.
pub const HEALTH_ACTIVE_CHECK_RUNS_MAX: u32 = 3;
/// Timeout of a GPU reset.
pub const HEALTH_RESET_MAX: Duration = Duration::from_secs(180);
/// Timeout of a service restart: systemd's own default for a start.
pub const HEALTH_RESTART_MAX: Duration = Duration::from_secs(90);
/// Units in the setting for restarts.
pub const HEALTH_RESTART_UNITS_MAX: usize = 16;
/// Timeout for a host to go down for a reboot.
pub const HEALTH_REBOOT_MAX: Duration = Duration::from_secs(600);
/// Bytes kept of the output of a health program.
pub const PROGRAM_OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Time that the output of an ended program is read: processes that it left running may hold it open.
pub const PROGRAM_DRAIN_MAX: Duration = Duration::from_millis(500);
/// Time to wait for a killed program to be gone: one that hangs in the kernel never ends.
pub const PROGRAM_REAP_MAX: Duration = Duration::from_secs(2);
/// Bytes of one record of the kernel's log: the kernel's own limit.
pub const KERNEL_LOG_RECORD_BYTES_MAX: usize = 8 << 10;
/// Poll interval of a kernel log without new records.
pub const KERNEL_LOG_POLL: Duration = Duration::from_millis(100);
/// Pause between attempts to open a kernel log.
pub const KERNEL_LOG_RETRY: Duration = Duration::from_secs(5);
/// Age of the oldest record considered in a kernel log that was never read, in microseconds: two hours, as
/// in Azure's health checks.
pub const KERNEL_LOG_LOOK_BACK_US_MAX: u64 = 2 * 3_600 * 1_000_000;
