//! Metrics of the monitor. Names end in their unit.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use muster_model::command::GpuDescription;
use muster_model::health::Severity;
use muster_model::ids::JobId;

use crate::gpu::GpuState;

const FAULTED: &str = "muster_worker_gpus_faulted";
const GPU_STATE: &str = "muster_worker_gpu_state";
const GPU_JOB: &str = "muster_worker_gpu_job_id";
const HELPERS_REPLACED: &str = "muster_worker_gpu_helpers_replaced_total";
const FINDINGS: &str = "muster_worker_health_findings_total";
const CHECKS: &str = "muster_worker_health_checks_total";
const WORKS: &str = "muster_worker_health_works_total";
const RULES: &str = "muster_worker_health_rules_taken_total";
const SWEEP: &str = "muster_worker_health_sweep_seconds";
const XIDS: &str = "muster_worker_xid_events_total";
const SXIDS: &str = "muster_worker_sxid_events_total";
const LOG_GAPS: &str = "muster_worker_kernel_log_lost_total";
const LOG_FORGED: &str = "muster_worker_kernel_log_forged_total";

/// Findings used by alerts.
const ALERTED: [(&str, Severity); 6] = [
    ("xid", Severity::Fatal),
    ("remap_pending", Severity::Degraded),
    ("remap_failure", Severity::Fatal),
    ("ecc_unc_volatile", Severity::Fatal),
    ("nvml_latency", Severity::Degraded),
    ("nvml_latency", Severity::Fatal),
];

/// Registers the descriptions, and initializes the series used by alerts with 0, so that they exist before
/// the first event.
pub fn describe() {
    for (rule, severity) in ALERTED {
        counter!(FINDINGS, "rule" => rule, "severity" => severity.name()).increment(0);
    }
    describe_gauge!(FAULTED, "GPUs of this host that are unfit");
    describe_gauge!(GPU_STATE, "1 for the state that a GPU is in, by its UUID");
    describe_gauge!(GPU_JOB, "id of the job that holds a GPU, 0 if none");
    describe_counter!(HELPERS_REPLACED, "GPU helper processes that were replaced");
    describe_counter!(
        FINDINGS,
        "health findings of this host, by rule and severity"
    );
    describe_counter!(CHECKS, "runs of the site's own checks, by check and result");
    describe_counter!(RULES, "rule files put into force, by source");
    describe_counter!(WORKS, "ordered repairs and checks, by outcome");
    describe_histogram!(SWEEP, "time to read all GPUs, or the host, once");
    describe_counter!(XIDS, "XIDs of this host's GPUs, unfiltered, by code");
    describe_counter!(SXIDS, "SXids of this host's switches, unfiltered, by code");
    describe_counter!(
        LOG_GAPS,
        "records of the kernel's log that were overwritten before they were read"
    );
    describe_counter!(
        LOG_FORGED,
        "lines in the kernel's log that name a GPU error but were not written by the kernel"
    );
}

pub(crate) fn health_finding(rule: &str, severity: Severity) {
    counter!(FINDINGS, "rule" => rule.to_owned(), "severity" => severity.name()).increment(1);
}

pub(crate) fn health_check(check: &str, severity: Option<Severity>) {
    let result = severity.map_or("unknown", Severity::name);
    counter!(CHECKS, "check" => check.to_owned(), "result" => result).increment(1);
}

pub(crate) fn health_work(action: &'static str, passed: bool) {
    let outcome = if passed { "passed" } else { "failed" };
    counter!(WORKS, "action" => action, "outcome" => outcome).increment(1);
}

/// Counts rules put into force from a replica, the disk, or this build.
pub(crate) fn health_rules(from: &'static str) {
    counter!(RULES, "from" => from).increment(1);
}

pub(crate) fn health_sweep(of: &'static str, took: Duration) {
    histogram!(SWEEP, "of" => of).record(took.as_secs_f64());
}

pub(crate) fn xid(code: u32) {
    counter!(XIDS, "code" => code.to_string()).increment(1);
}

pub(crate) fn sxid(code: u32) {
    counter!(SXIDS, "code" => code.to_string()).increment(1);
}

pub(crate) fn kernel_log_gap(lost: u64) {
    counter!(LOG_GAPS).increment(lost);
}

pub(crate) fn kernel_log_forged(lines: u64) {
    counter!(LOG_FORGED).increment(lines);
}

pub(crate) fn gpu_helper_replaced() {
    counter!(HELPERS_REPLACED).increment(1);
}

/// Sets the use of a GPU. The job's id is a value and not a label: it can be joined by the GPU, and no
/// series stays behind when the job ends.
pub(crate) fn gpu_use(gpu: &GpuDescription, state: GpuState, job: Option<JobId>) {
    let (uuid, index) = (gpu.uuid.to_string(), gpu.index.to_string());
    for known in GpuState::ALL {
        let labels = [
            ("UUID", uuid.clone()),
            ("gpu", index.clone()),
            ("state", known.label().to_owned()),
        ];
        gauge!(GPU_STATE, &labels).set(if known == state { 1.0 } else { 0.0 });
    }
    // Ids are revisions of the log: far below 2^53.
    let id = job.map_or(0.0, |job| job.get() as f64);
    gauge!(GPU_JOB, "UUID" => uuid, "gpu" => index).set(id);
}

/// Sets the number of unfit GPUs.
pub(crate) fn gpus_faulted(number: usize) {
    gauge!(FAULTED).set(f64::from(u32::try_from(number).unwrap_or(u32::MAX)));
}
