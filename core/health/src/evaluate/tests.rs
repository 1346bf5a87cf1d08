//! Windows, thresholds, floods and repetitions over simulated time.

use muster_model::health::{Component, DeviceAction, Severity};
use muster_model::ids::{GpuUuid, HostId, JobId};
use muster_model::time::{HOUR_MS, MINUTE_MS, SECOND_MS, TimeMs};

use super::*;
use crate::evaluate::bursts::GPUS_MAX;
use crate::evaluate::readings::TRACKS_MAX;
use crate::kernel_log::{BusMap, Cursor, Event, Scanner, TrustedWriters};
use crate::rules::{Hold, RuleSet};

fn second(seconds: u64) -> TimeMs {
    TimeMs(seconds * SECOND_MS)
}

/// Shows when a window holds, with readings every ten seconds: `x` met, `.` not.
fn held(hold: Hold, readings: &str) -> String {
    let mut window = Window::new(hold);
    let seen = readings.chars().zip(0..);
    seen.map(|(reading, at)| {
        let holds = window.observe(second(10 * at), reading == 'x');
        if holds { 'H' } else { '-' }
    })
    .collect()
}

#[test]
fn conditions_hold_as_they_are_written() {
    let minute = 60 * SECOND_MS;
    for (hold, readings, expected) in [
        (Hold::Once, "..x.x", "--H-H"),
        (Hold::InARow(3), "xx.xxxx.", "-----HH-"),
        (Hold::OutOf { met: 3, of: 5 }, "x.x.x...", "----H---"),
        (Hold::For { span_ms: 20_000 }, "xxx.xxxx", "--H---HH"),
        (
            Hold::Within {
                times: 2,
                span_ms: minute,
            },
            "x.....x.......x",
            "------H--------",
        ),
        (
            Hold::Within {
                times: 2,
                span_ms: minute,
            },
            "x..x...........",
            "---HHHH--------",
        ),
        (
            Hold::OutOf { met: 64, of: 64 },
            &"x".repeat(65),
            &("-".repeat(63) + "HH"),
        ),
    ] {
        assert_eq!(held(hold, readings), expected, "{hold:?} {readings}");
    }
}

#[test]
fn a_counter_reset_is_not_an_event() {
    let mut counter = Counter::default();
    let totals = [7, 7, 9, 0, 0, 3, 2];
    let grown: Vec<i64> = totals
        .into_iter()
        .map(|total| counter.increase(total))
        .collect();
    assert_eq!(grown, [0, 0, 2, 0, 0, 3, 2]);
}

#[test]
fn the_limit_of_pcie_replays_is_dcgms() {
    let limits = [3, 4, 5, 6].map(|generation| pcie_replay_limit_per_minute(generation, 16));
    assert_eq!(limits, [Some(8), Some(16), Some(31), Some(62)]);
    assert_eq!(pcie_replay_limit_per_minute(0, 16), None);
    assert_eq!(pcie_replay_limit_per_minute(7, 16), None);
}

/// Plays values of one metric at a fixed interval, and returns the transitions with their times.
fn play(rule: &str, metric: &str, every_s: u64, values: &[i64]) -> Vec<String> {
    let set = RuleSet::shipped().expect("the shipped rules parse");
    let rule = set.rule(rule).expect("it is shipped");
    let component = Component::Gpu(GpuUuid(7));
    let mut readings = Readings::default();
    let mut found = Vec::new();
    for (at, value) in (0..).zip(values) {
        let reading = Reading {
            component: &component,
            model: "NVIDIA H100 80GB HBM3",
            metrics: &[(metric, *value)],
        };
        if let Some(it) = readings.read(second(at * every_s), rule, &reading) {
            found.push(
                format!(
                    "{}s {} {} {}",
                    at * every_s,
                    it.severity,
                    it.measured,
                    it.condition
                )
                .trim_end()
                .to_owned(),
            );
        }
    }
    found
}

#[test]
fn a_threshold_is_reported_when_it_is_reached_and_when_it_is_left() {
    assert_eq!(
        play(
            "temp_core",
            "over_max_c",
            30,
            &[-20, 1, 2, 3, 0, -4, -4, -6, -6]
        ),
        ["90s degraded 3 over_max_c > 0, for 1m"]
    );
    let mut cooling = vec![-20, 1, 2, 3];
    cooling.extend([-6; 22]);
    assert_eq!(
        play("temp_core", "over_max_c", 30, &cooling),
        ["90s degraded 3 over_max_c > 0, for 1m", "720s healthy 0"]
    );
}

#[test]
fn an_adapter_that_is_down_for_half_a_minute_blocks_nothing() {
    assert_eq!(
        play("ib_state", "down", 10, &[0, 1, 1, 1, 0, 0]),
        ["10s degraded 1 down = 1"]
    );
    assert_eq!(
        play("ib_state", "down", 60, &[0, 1, 1, 1, 1, 1, 1]),
        ["60s degraded 1 down = 1", "300s fatal 1 down = 1, for 4m"]
    );
}

#[test]
fn thermal_throttling_over_ten_minutes_is_degraded_and_clears_when_it_ends() {
    // Every other reading is too few, more than half of ten minutes is not.
    let mut slowed = [[1, 0]; 10].concat();
    slowed.extend([1; 4]);
    slowed.extend([0; 24]);
    assert_eq!(
        play("hw_slowdown", "slowed", 30, &slowed),
        ["690s degraded 1 slowed = 1, 12 of 20", "1320s healthy 0"]
    );
    assert_eq!(
        play("hw_slowdown", "slowed_busy", 30, &[1; 42]),
        ["1200s fatal 1 slowed_busy = 1, for 20m"]
    );
}

/// Five looks a minute apart, however often the host is looked at.
#[test]
fn a_driver_that_waits_in_the_kernel_is_given_five_minutes() {
    for period_s in [5, 30, 60] {
        let looks = vec![1; 12 * 60 / period_s as usize];
        assert_eq!(
            play("nvidia_dstate", "driver_waiting", period_s, &looks),
            ["300s fatal 1 driver_waiting >= 1, for 5m"],
            "{period_s}"
        );
    }
    let mut twice = vec![1; 10];
    twice.push(0);
    twice.extend([1; 10]);
    assert!(play("nvidia_dstate", "driver_waiting", 30, &twice).is_empty());
}

#[test]
fn uncorrected_errors_are_fatal_at_once_and_corrected_ones_by_their_number() {
    assert_eq!(
        play("ecc_unc_volatile", "errors_increase", 30, &[0, 1, 0]),
        ["30s fatal 1 errors_increase >= 1"]
    );
    assert_eq!(
        play("ecc_cor_dram", "errors", 30, &[20_000_000, 20_000_001]),
        ["30s degraded 20000001 errors > 20000000"]
    );
    assert_eq!(
        play("pcie_replay", "permille_of_limit", 60, &[1_290]),
        ["0s degraded 1290 permille_of_limit > 1000"]
    );
    assert_eq!(
        play("nvml_latency", "unfinished_s", 30, &[0, 90, 120]),
        ["60s fatal 120 unfinished_s >= 120"]
    );
    assert_eq!(
        play("nvlink_down", "inactive", 30, &[1, 0, 1, 1]),
        ["90s fatal 1 inactive >= 1, 2 in a row"]
    );
}

#[test]
fn thresholds_of_one_gpu_model_do_not_apply_to_another() {
    let set = RuleSet::shipped().expect("the shipped rules parse");
    let rule = set.rule("nccl_intra").expect("it is shipped");
    let component = Component::Host(HostId(1));
    let mut readings = Readings::default();
    let mut read = |model: &str, at| {
        let reading = Reading {
            component: &component,
            model,
            metrics: &[("bus_gb_per_s", 300)],
        };
        readings
            .read(second(at), rule, &reading)
            .map(|it| it.condition)
    };
    assert_eq!(read("NVIDIA A100", 0), None);
    assert_eq!(read("NVIDIA A100", 1), None);
    assert_eq!(read("NVIDIA H200", 2), None);
    assert_eq!(
        read("NVIDIA H200", 3).as_deref(),
        Some("bus_gb_per_s < 431, 2 in a row, on H200")
    );
}

#[test]
fn an_event_based_fault_ends_after_a_quiet_period() {
    let set = RuleSet::shipped().expect("the shipped rules parse");
    let rule = set.rule("oom_global").expect("it is shipped");
    let component = Component::Host(HostId(1));
    let mut readings = Readings::default();
    let reading = Reading {
        component: &component,
        model: "",
        metrics: &[("kills", 1)],
    };
    let mut read = |at| {
        readings
            .read(TimeMs(at), rule, &reading)
            .map(|it| it.severity)
    };
    assert_eq!(read(0), Some(Severity::Degraded));
    assert_eq!(read(10 * MINUTE_MS), None);
    assert_eq!(read(20 * MINUTE_MS), Some(Severity::Fatal));
    assert_eq!(readings.quiet(TimeMs(80 * MINUTE_MS)), []);
    let over = readings.quiet(TimeMs(81 * MINUTE_MS));
    assert_eq!(over, [("oom_global".to_owned(), component.clone())]);
    assert_eq!(readings.quiet(TimeMs(82 * MINUTE_MS)), []);
}

#[test]
fn readings_are_bounded() {
    let set = RuleSet::shipped().expect("the shipped rules parse");
    let rule = set.rule("ecc_unc_volatile").expect("it is shipped");
    let mut readings = Readings::default();
    for gpu in 0..TRACKS_MAX as u128 + 10 {
        let component = Component::Gpu(GpuUuid(gpu));
        let metrics = [("errors_increase", i64::from(gpu == 0))];
        let reading = Reading {
            component: &component,
            model: "",
            metrics: &metrics,
        };
        let found = readings.read(TimeMs(1), rule, &reading);
        assert_eq!(found.is_some(), gpu == 0);
    }
    // A track with a severity was not dropped for one without.
    let component = Component::Gpu(GpuUuid(0));
    let reading = Reading {
        component: &component,
        model: "",
        metrics: &[("errors_increase", 1)],
    };
    assert_eq!(readings.read(TimeMs(2), rule, &reading), None);
}

#[test]
fn a_flood_is_reported_once_and_no_code_is_missed() {
    let mut coalescer = Coalescer::default();
    let mut reported = Vec::new();
    for line in 0..20_000u64 {
        // Ten thousand lines a second of two codes, and once another one.
        let code = if line == 9_999 {
            79
        } else {
            31 + (line % 2) as u32 * 63
        };
        if coalescer.record(TimeMs(line / 10), Some(GpuUuid(1)), code) != LineKind::Again {
            reported.push(code);
        }
    }
    assert_eq!(reported, [31, 94, 79]);
    let later = coalescer.record(TimeMs(60_000), Some(GpuUuid(1)), 31);
    assert_eq!(later, LineKind::New { suppressed: 9_999 });
}

struct Player {
    rules: RuleSet,
    xids: Xids,
}

impl Player {
    fn with(rule: &str, from: &str, to: &str) -> Self {
        Self {
            rules: RuleSet::edited(rule, from, to),
            xids: Xids::default(),
        }
    }

    fn new() -> Self {
        Self {
            rules: RuleSet::shipped().expect("the shipped rules parse"),
            xids: Xids::default(),
        }
    }

    /// An XID of a GPU at a minute, of a job of the user with the same number.
    fn see(&mut self, minute: u64, gpu: u128, code: u32, job: u64) -> XidOutcome {
        self.see_of(minute, gpu, code, job, job)
    }

    fn see_of(&mut self, minute: u64, gpu: u128, code: u32, job: u64, user: u64) -> XidOutcome {
        let seen = XidReport {
            gpu: GpuUuid(gpu),
            code,
            cluster: (code == 13).then_some((1, 3)),
            job: (job > 0).then_some(JobId(job)),
            user: (user > 0).then(|| format!("user{user}")),
            at: TimeMs(minute * MINUTE_MS),
            is_ours: false,
        };
        self.xids.record(&self.rules, &seen)
    }
}

fn rules(outcome: &XidOutcome) -> Vec<(&'static str, bool)> {
    outcome
        .escalations
        .iter()
        .map(|it| (it.rule, it.blocks))
        .collect()
}

#[test]
fn a_page_fault_counts_against_the_gpu_only_for_two_users() {
    let mut player = Player::new();
    assert_eq!(rules(&player.see(0, 1, 31, 1)), []);
    assert_eq!(rules(&player.see(60, 1, 31, 2)), [("xid31_same_gpu", true)]);
    // Two jobs of one user: a check when the GPU is idle, and no block.
    let mut player = Player::new();
    player.see_of(0, 1, 31, 1, 9);
    let second = player.see_of(60, 1, 31, 2, 9);
    assert_eq!(rules(&second), [("xid31_same_gpu", false)]);
    // A day later it is forgotten.
    let mut player = Player::new();
    player.see(0, 1, 31, 1);
    assert_eq!(rules(&player.see(25 * 60, 1, 31, 2)), []);
}

#[test]
fn a_job_that_faults_on_every_gpu_leaves_no_suspicion() {
    let mut player = Player::new();
    player.see(0, 4, 31, 7);
    assert!(!player.see(1, 1, 31, 1).is_jobs_own);
    assert!(player.see(2, 2, 31, 1).is_jobs_own);
    assert!(player.see(3, 3, 31, 1).is_jobs_own);
    let fourth = player.see(4, 4, 31, 1);
    assert!(fourth.is_jobs_own && fourth.escalations.is_empty());
    for gpu in 1..=3 {
        assert_eq!(player.xids.of(GpuUuid(gpu)), [], "{gpu}");
    }
    // Occurrences of another job are kept.
    assert_eq!(player.xids.of(GpuUuid(4)).len(), 1);
}

#[test]
fn a_hardware_fault_of_one_job_on_many_gpus_stays_hardware() {
    let mut player = Player::new();
    for gpu in 1..=4 {
        assert!(!player.see(gpu as u64, gpu, 95, 1).is_jobs_own);
        assert_eq!(player.xids.of(GpuUuid(gpu)).len(), 1);
    }
}

#[test]
fn consequences_are_folded_into_their_cause() {
    let mut player = Player::new();
    assert!(player.see(0, 1, 79, 1).is_new);
    assert!(player.see(1, 1, 45, 1).is_folded);
    assert!(player.see(1, 1, 154, 1).is_folded);
    assert!(player.see(10, 1, 45, 1).is_new);
    // Reported in the other order.
    let mut player = Player::new();
    player.see(0, 1, 45, 1);
    player.see(1, 1, 48, 1);
    let codes: Vec<u32> = player
        .xids
        .of(GpuUuid(1))
        .iter()
        .map(|it| it.code)
        .collect();
    assert_eq!(codes, [48]);
    let ours = XidReport {
        gpu: GpuUuid(2),
        code: 45,
        cluster: None,
        job: None,
        user: None,
        at: TimeMs(10 * MINUTE_MS),
        is_ours: true,
    };
    assert!(player.xids.record(&player.rules, &ours).is_folded);
}

#[test]
fn bursts_are_counted_and_sticky_codes_belong_to_theirs_for_hours() {
    let mut player = Player::new();
    // 79 repeatedly within three hours is one.
    for minute in [0, 30, 100, 170] {
        let is_new = player.see(minute, 1, 79, 1).is_new;
        assert_eq!(is_new, minute == 0, "{minute}");
    }
    let again = player.see(200, 1, 79, 1);
    assert!(again.is_new);
    assert_eq!(again.escalations[0].then, DeviceAction::Rma);
    // Five bursts of fatal codes in a day: only an operator can unblock it.
    let mut player = Player::new();
    for burst in 0..4 {
        assert!(!rules(&player.see(burst * 60, 2, 62, 1)).contains(&("xid_repeat", true)));
    }
    assert!(rules(&player.see(240, 2, 62, 1)).contains(&("xid_repeat", true)));
}

#[test]
fn an_exception_counts_on_the_same_cluster_only() {
    let mut player = Player::new();
    let mut see = |minute: u64, cluster, job: u64| {
        let seen = XidReport {
            gpu: GpuUuid(1),
            code: 13,
            cluster: Some(cluster),
            job: Some(JobId(job)),
            user: Some(format!("user{job}")),
            at: TimeMs(minute * MINUTE_MS),
            is_ours: false,
        };
        rules(&player.xids.record(&player.rules, &seen))
    };
    assert_eq!(see(0, (1, 3), 1), []);
    assert_eq!(see(60, (2, 3), 2), []);
    assert_eq!(see(120, (1, 3), 3), [("xid13_same_tpc", true)]);
}

/// The rules set the number and the span.
#[test]
fn repetitions_are_counted_by_the_figures_of_their_rules() {
    let often_fatal = |from: &str, to: &str, minutes: u64| {
        let mut player = Player::with("xid_repeat", from, to);
        let burst = |(at, code): (u64, u32)| rules(&player.see(at * minutes, 1, code, 0)).len();
        (0..)
            .zip([46, 48, 62, 64, 95])
            .map(burst)
            .collect::<Vec<_>>()
    };
    let shipped = "5 in 24h";
    assert_eq!(often_fatal(shipped, "5 in 23h", 60), [0, 0, 0, 0, 1]);
    assert_eq!(often_fatal(shipped, "3 in 24h", 60), [0, 0, 1, 1, 1]);
    assert_eq!(often_fatal(shipped, "3 in 2h", 90), [0; 5]);
    let exceptions = |from: &str, to: &str| {
        let mut player = Player::with("xid13_same_tpc", from, to);
        let see = |job: u64| player.see(job * 60, 1, 13, job).escalations;
        let escalations = (1..=3).flat_map(see);
        escalations
            .map(|it| format!("{} after {}", it.then, it.evidence))
            .collect::<Vec<_>>()
    };
    let third = "check after XID 13 in 3 bursts of 3 jobs of 3 users within 24 h";
    assert_eq!(exceptions("2 in 24h", "3 in 24h"), [third]);
    assert_eq!(exceptions("2 in 24h", "2 in 30m"), Vec::<String>::new());
    let goes_back = exceptions("[\"check\"]", "[\"rma\"]");
    assert!(goes_back[0].starts_with("rma after "), "{goes_back:?}");
}

#[test]
fn the_record_of_xids_is_bounded() {
    let mut player = Player::new();
    for minute in 0..300 {
        player.see(minute * 4, 1, 94, minute + 1);
    }
    assert!(player.xids.of(GpuUuid(1)).len() <= OCCURRENCES_PER_GPU_MAX as usize);
    for gpu in 0..GPUS_MAX as u128 + 5 {
        player.see(2_000, 100 + gpu, 63, 0);
    }
    assert_eq!(player.xids.of(GpuUuid(1)), []);
    assert_eq!(HOUR_MS, 60 * MINUTE_MS);
}

/// Assessment of a line of the kernel's log.
fn judged(line: &str, release: Option<u32>) -> String {
    let codes = RuleSet::shipped().expect("the shipped rules parse").codes;
    let mut scanner = Scanner::new(TrustedWriters::Kernel, Cursor::default(), BusMap::default());
    let scanned = scanner.read("boot", &format!("3,1,1,-;{line}"));
    let judged = match scanned.expect("a record").event.expect("it says something") {
        Event::Xid { xid, .. } => judge_xid(&codes, &xid, release),
        Event::Sxid { sxid, .. } => judge_sxid(&codes, &sxid),
        Event::Host(_) => panic!("not about a device"),
    };
    let Assessment {
        severity,
        block,
        task,
        device,
        action,
        charge,
        reading,
    } = judged;
    let action = action.map_or_else(String::new, |action| format!(" {action}"));
    format!("{severity} {block} {task} {device}{action} {charge} {reading}")
        .trim_end()
        .to_owned()
}

#[test]
fn errors_are_judged_by_code_registers_and_text() {
    let xid = |rest: &str| format!("NVRM: Xid (PCI:0000:18:00): {rest}");
    let old = Some(570);
    for (line, expected) in [
        (
            xid("79, GPU has fallen off the bus."),
            "fatal host kill reboot infra",
        ),
        (xid("48, pid=7, name=x, DBE"), "fatal gpu kill reset infra"),
        (
            xid("94, pid=7, name=x, Contained"),
            "degraded gpu_at_task_end restart reset_idle infra",
        ),
        (
            xid("31, pid=7, name=x, MMU Fault"),
            "warn none restart none user",
        ),
        (
            xid("63, Row Remapper"),
            "degraded gpu_at_task_end none reset_idle none",
        ),
        (
            xid("43, pid=7, Ch 1"),
            "info none restart_if_died none user",
        ),
        (
            xid("999, new"),
            "warn none restart_if_died none infra an unknown code",
        ),
        (
            xid(
                "74, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
            ),
            "fatal gpu kill reset infra look at how boards and cables are seated",
        ),
        (
            xid("74, NVLink: error on link 6(0x800001, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"),
            "warn none restart_if_died none infra meaningless registers",
        ),
        (
            xid("74, NVLink: error on link 6(0x100002, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"),
            "warn none restart_if_died none infra the other end of the link failed",
        ),
        (
            xid("74, NVLink: error on link 6(0x100002, 0x0, 0x4, 0x0, 0x0, 0x0, 0x0)"),
            "fatal gpu kill reset infra",
        ),
        (xid("74, NVLink: error"), "fatal gpu kill reset infra"),
        (
            xid("149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)"),
            "fatal gpu kill reset infra netir_link_down",
        ),
        (
            xid("149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x020005c6 0x00000000)"),
            "fatal gpu kill reset infra netir_link_down: look at the other end first",
        ),
        (
            xid("144, SAW_MVB Nonfatal XC0 i0 Link 01 (0x00000021 0x00000004)"),
            "warn none restart_if_died none infra saw_mvb",
        ),
        (
            xid("145, RLW_REMAP Nonfatal XC0 i0 Link 01 (0x00000082 0x00000001)"),
            "warn none restart_if_died none infra rlw_remap: decided by XID 154",
        ),
        (
            xid("147, NEW Fatal XC0 i0 Link 01 (0xffffffff 0x00000001)"),
            "fatal gpu kill reset infra fatal by its line",
        ),
        (
            xid("147, NEW Nonfatal XC0 i0 Link 01 (0xffffffff 0x00000001)"),
            "warn none restart_if_died none infra unknown registers",
        ),
        (
            xid("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"),
            "info none restart_if_died none infra None",
        ),
        (
            xid("154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
            "fatal host kill reboot infra Node Reboot Required",
        ),
        (
            xid("154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)"),
            "degraded none restart_if_died none no_peer_gang infra Drain P2P",
        ),
        (
            xid("154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"),
            "degraded gpu_at_task_end restart_if_died reset_idle infra Drain and Reset",
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
                .to_owned(),
            "fatal host kill reboot infra ltssm_fault_up",
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 11012, Non-fatal, Link 30 x".to_owned(),
            "warn none restart_if_died none infra single_bit_ecc_errors",
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 10004, Host_thermal_event_start".to_owned(),
            "warn none restart_if_died none no_new_task infra host_thermal_event_start",
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 99999, Fatal, Link 30 new".to_owned(),
            "fatal host kill reboot infra fatal by its line",
        ),
    ] {
        assert_eq!(judged(&line, old), expected, "{line}");
    }
}

#[test]
fn a_doubted_reading_is_reported_once_whether_healthy_or_not() {
    let rules = RuleSet::shipped().expect("they are good");
    let rule = rules.rule("fs_readonly").expect("a rule");
    let host = Component::Host(HostId(1));
    let severities = |values: &[i64]| {
        let mut readings = Readings::default();
        readings.doubt(second(0), rule, &host);
        let severities = values.iter().zip(1..).map(|(value, at)| {
            let metrics = [("readonly", *value)];
            let reading = Reading {
                component: &host,
                model: "",
                metrics: &metrics,
            };
            let transition = readings.read(second(at), rule, &reading);
            transition.map(|it| it.severity)
        });
        severities.collect::<Vec<_>>()
    };
    let (healthy, fatal) = (Some(Severity::Healthy), Some(Severity::Fatal));
    assert_eq!(severities(&[0, 0, 1]), [healthy, None, fatal]);
    assert_eq!(severities(&[1, 1, 0]), [fatal, None, healthy]);
    // An event-based fault is over once it was quiet for long enough.
    let panics = rules.rule("kernel_panic").expect("a rule");
    let mut readings = Readings::default();
    readings.doubt(second(0), panics, &host);
    assert!(readings.quiet(second(3_600)).is_empty());
    let over = readings.quiet(second(25 * 3_600));
    assert_eq!(over, [("kernel_panic".to_owned(), host)]);
    assert!(readings.quiet(second(50 * 3_600)).is_empty());
}
