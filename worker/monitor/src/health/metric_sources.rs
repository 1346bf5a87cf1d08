//! Source of each metric of the default rules. Tests compare this with the rules and the documentation, so
//! that no rule lacks a source unnoticed.

use std::collections::BTreeSet;

use muster_health::rules::RuleSet;

/// The rules, their metrics and the source of these; a metric that is not listed is never read.
const SOURCES: &[(&str, &[&str], &str)] = &[
    ("xid", &["policy"], "kernel log, NVML events"),
    ("sxid_fatal", &["fatal", "nonfatal"], "kernel log"),
    (
        "pcie_fatal",
        &["fatal_increase", "nonfatal_increase"],
        "kernel log",
    ),
    ("kernel_panic", &["oops", "panic"], "kernel log"),
    ("hung_task", &["tasks", "runtime_or_driver"], "kernel log"),
    ("soft_lockup", &["lockups"], "kernel log"),
    ("mce_uncorrected", &["recoverable"], "kernel log"),
    (
        "mce_uncorrected",
        &["errors_increase"],
        "kernel log, sys/devices/system/edac",
    ),
    ("oom_global", &["kills"], "kernel log"),
    ("kernel_log_gap", &["lost"], "kernel log"),
    (
        "fs_readonly",
        &["readonly"],
        "kernel log, statvfs of the data directory",
    ),
    ("nvme", &["timeouts", "disabled"], "kernel log"),
    ("block_io_error", &["errors", "superblock"], "kernel log"),
    ("raid", &["failures"], "kernel log"),
    ("nfs_hang", &["unanswered"], "kernel log"),
    ("mlx5_fatal", &["warnings", "fatal"], "kernel log"),
    ("peermem", &["contexts"], "kernel log"),
    ("nccl_segv", &["faults"], "kernel log"),
    ("site_check", &["result"], "the site's own checks"),
    ("gpu_lost", &["lost"], "the GPU backend"),
    ("gpu_reset_required", &["required"], "the GPU backend"),
    ("ecc_unc_volatile", &["errors_increase"], "the GPU backend"),
    ("inforom", &["corrupt"], "the GPU backend"),
    ("driver_lib_mismatch", &["mismatch"], "the GPU backend"),
    ("nvml_init", &["failures"], "the GPU helper process"),
    (
        "p2p",
        &["pairs_good", "pairs_bad"],
        "NVML, pairs of this host's GPUs",
    ),
    (
        "ipmi_sel",
        &["warnings", "critical"],
        "event log of the board, by ipmitool or ipmi-sel",
    ),
    (
        "mem_leak",
        &["held_mib", "held_after_kill_mib"],
        "the GPU backend, and the handover between tasks",
    ),
    ("foreign_proc", &["processes"], "NVML, proc/*/environ"),
    (
        "nvml_latency",
        &["sweep_ms", "unfinished_s"],
        "the sampler's clock",
    ),
    (
        "gpu_recovery_action",
        &["action"],
        "NVML field 230, XID 154",
    ),
    ("gpu_recovery_peers", &["action"], "NVML field 230, XID 154"),
    (
        "gpu_recovery_reboot",
        &["action"],
        "NVML field 230, XID 154",
    ),
    ("ecc_cor_dram", &["errors"], "NVML error counters"),
    ("ecc_cor_sram", &["errors"], "NVML error counters"),
    ("remap_cor", &["rows"], "NVML field 142"),
    ("remap_unc", &["rows"], "NVML field 143"),
    ("remap_pending", &["pending"], "NVML field 144"),
    ("remap_failure", &["failure"], "NVML field 145"),
    (
        "retired_pages",
        &["pending", "pages", "growing_double_bit_pages"],
        "NVML retired pages",
    ),
    ("ecc_mode", &["differs"], "NVML modes"),
    ("mig_mode", &["differs"], "NVML modes"),
    ("persistence", &["off"], "NVML modes"),
    (
        "temp_core",
        &["over_max_c", "below_shutdown_c"],
        "NVML temperatures",
    ),
    ("temp_hbm", &["over_max_c"], "NVML field 82"),
    (
        "hw_slowdown",
        &["slowed", "slowed_busy"],
        "NVML throttle reasons",
    ),
    (
        "power_brake",
        &["braked"],
        "NVML throttle reasons, of any GPU",
    ),
    (
        "power_brake",
        &["hosts_braked"],
        "the state, from hosts of a rack",
    ),
    (
        "violation_time",
        &["throttled_permille"],
        "NVML violation times",
    ),
    ("power_unreadable", &["failed"], "NVML power"),
    ("power_limit", &["limit_permille_of_default"], "NVML power"),
    (
        "clock_low",
        &["performance_state"],
        "NVML, while the GPU is busy",
    ),
    (
        "clock_low",
        &["clock_permille_of_peers"],
        "NVML, from GPUs of this host that run the same job",
    ),
    ("pcie_replay", &["permille_of_limit"], "NVML PCIe"),
    (
        "pcie_link",
        &["width_permille", "generation_short"],
        "NVML PCIe",
    ),
    ("nvlink_down", &["inactive"], "NVML links"),
    ("nvlink_replay", &["per_minute"], "NVML links"),
    ("nvlink_crc", &["per_minute", "per_second"], "NVML links"),
    ("gpu_count", &["missing"], "sys/bus/pci"),
    (
        "mem_available",
        &["available_permille", "available_mib"],
        "proc/meminfo",
    ),
    (
        "disk_free",
        &["free_permille", "free_mib"],
        "statvfs of the data directory",
    ),
    (
        "mce_corrected",
        &["errors_per_day", "errors_per_hour"],
        "sys/devices/system/edac",
    ),
    (
        "fds_pids",
        &["used_permille"],
        "proc/sys/fs/file-nr, proc/loadavg",
    ),
    ("zombies", &["zombies", "limit_permille"], "proc/*/stat"),
    (
        "nvidia_dstate",
        &["waiting", "driver_waiting"],
        "proc/*/stat",
    ),
    ("cpu_temp", &["warning", "critical"], "sys/class/hwmon"),
    ("eth_mgmt", &["carrier_changes_per_minute"], "sys/class/net"),
    ("ib_state", &["down"], "sys/class/infiniband"),
    (
        "ib_flap",
        &["flaps", "flaps_over_25s", "lost_carrier"],
        "sys/class/infiniband",
    ),
    (
        "ib_symbol",
        &["per_second", "per_hour"],
        "sys/class/infiniband",
    ),
    (
        "ib_counters",
        &[
            "recoveries_per_minute",
            "receive_errors_per_second",
            "discards_per_second",
            "ack_timeouts_per_second",
            "slow_restarts_per_second",
            "link_downed_increase",
            "integrity_increase",
            "overrun_increase",
            "rnr_retry_increase",
        ],
        "sys/class/infiniband",
    ),
    (
        "reboot_unexpected",
        &["reboots"],
        "the boot's identity when the agent starts",
    ),
    ("xid_repeat", &["bursts"], "the state, from XIDs"),
    ("xid31_same_gpu", &["bursts"], "the state, from XIDs"),
    ("xid13_same_tpc", &["bursts"], "the state, from XIDs"),
    ("remediations", &["repairs"], "the state, from repairs"),
    ("history", &["failures"], "the state, from ends of attempts"),
    (
        "lemon",
        &["score_milli"],
        "the state, from ends, blocks and XIDs",
    ),
    (
        "flapping",
        &["silences"],
        "the state, from the silence of hosts",
    ),
    (
        "mount_missing",
        &["missing", "timeouts"],
        "the setting `mounts`",
    ),
    (
        "mem_expected",
        &["total_permille"],
        "proc/meminfo, the setting `expected`",
    ),
    (
        "driver_version",
        &["differs"],
        "proc/driver/nvidia/version, the setting `expected`",
    ),
    (
        "ib_state",
        &["short_of_profile"],
        "sys/class/infiniband, the setting `expected`",
    ),
    ("clock_sync", &["unsynchronised"], "timedatectl"),
    (
        "task_stuck",
        &["tasks"],
        "supervisors that cannot kill a task",
    ),
    ("agent_watchdog", &["still_s"], "the agent's own clock"),
    (
        "clock_skew",
        &["offset_ms"],
        "the leader's time in heartbeat acknowledgements",
    ),
    ("fabric_manager", &["inactive", "restarting"], "systemctl"),
    ("nv_services", &["inactive"], "systemctl"),
    ("runtime", &["failed"], "systemctl"),
    ("active_check", &["failed"], "the check of a host"),
    (
        "active_check",
        &["baseline_permille"],
        "the site's `active_check`",
    ),
    (
        "h2d_bw",
        &["gb_per_s", "from_gb_per_s"],
        "the site's `active_check`",
    ),
    (
        "peer_bw",
        &["peer_gb_per_s", "peers_indirect"],
        "the site's `active_check`",
    ),
    ("miscompare", &["miscompares"], "the site's `active_check`"),
];

#[test]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
fn unread_metrics_are_listed_in_the_documentation() {
    let rules = RuleSet::shipped().unwrap();
    let mut unread = BTreeSet::new();
    for rule in &rules.rules {
        let conditions = rule.degraded.when.iter().chain(&rule.fatal.when);
        for condition in conditions.chain(&rule.healthy) {
            unread.insert((rule.id.as_str(), condition.metric.as_str()));
        }
    }
    for (rule, metrics, _) in SOURCES {
        for metric in *metrics {
            assert!(
                unread.remove(&(rule, metric)),
                "no shipped rule has {rule}.{metric}"
            );
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/host-health.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, list) = text.split_once("## Metrics without a source").unwrap();
    let listed: BTreeSet<&str> = list.split('`').filter(|it| it.contains('.')).collect();
    let unread: Vec<String> = unread
        .iter()
        .map(|(rule, metric)| format!("{rule}.{metric}"))
        .collect();
    let expected: BTreeSet<&str> = unread.iter().map(String::as_str).collect();
    let listed = listed.into_iter().filter(|it| !it.contains(['\n', ' ']));
    assert_eq!(listed.collect::<BTreeSet<&str>>(), expected);
}
