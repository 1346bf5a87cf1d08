//! Tests of the findings that the rules produce.

use muster_health::checks::{CheckEnd, Dialect, read};
use muster_health::kernel_log::{Cursor, Event, HostFinding, Scanner, SmLocation, TrustedWriters};
use muster_model::ids::HostId;
use muster_supervisor::lease::clock::LeaseClock;

use super::*;
use crate::gpu::faulted;
use crate::health::KnownRules;
use crate::replicas::KnownReplicas;
use crate::reports::report_channel;

const FIRST: GpuUuid = GpuUuid(1);
const SECOND: GpuUuid = GpuUuid(2);

/// A rule evaluation with its output and its stored notes.
struct Rig {
    evaluator: RuleEvaluator,
    incoming: mpsc::Receiver<MonitorReport>,
    written: watch::Receiver<Notes>,
}

impl Rig {
    fn new() -> Self {
        Self::after(Notes::default())
    }

    fn after(notes: Notes) -> Self {
        let (reports, incoming) = report_channel();
        let (writer, written) = watch::channel(notes.clone());
        let (seen, _) = mpsc::channel(8);
        let clock = LeaseClock::start();
        let host = Host {
            root: PathBuf::from("/nonexistent"),
            models: [(FIRST, "H100".to_owned()), (SECOND, "H100".to_owned())].into(),
            buses: BusMap::default(),
            sweep: Arc::new(Sweep::new(clock)),
        };
        let evaluator = RuleEvaluator::new(
            notes,
            host,
            RulesSource::new(KnownReplicas::configured(Vec::new())),
            Links {
                clock: Arc::new(move || clock.now()),
                known_faults: KnownFaults::default(),
                writer,
                reports,
                seen,
            },
        );
        Self {
            evaluator,
            incoming,
            written,
        }
    }

    /// Findings from an observation: component, rule, severity and measured value.
    async fn see(&mut self, seen: Observation) -> Vec<String> {
        self.evaluator.see(seen);
        self.evaluator.forward_findings().await;
        let mut found = Vec::new();
        while let Ok(MonitorReport::Found(findings)) = self.incoming.try_recv() {
            found.extend(findings.iter().map(|finding| {
                let component = match &finding.component {
                    Component::Gpu(gpu) => format!("gpu {}", gpu.0),
                    _ => "host".to_owned(),
                };
                let Finding {
                    rule,
                    severity,
                    metric,
                    measured,
                    ..
                } = finding;
                format!("{component} {rule} {severity} {metric}={measured}")
            }));
        }
        found
    }

    async fn health(&mut self, gpu: GpuUuid, health: GpuHealth) -> Vec<String> {
        self.see(Observation::Gpu(gpu, health)).await
    }

    async fn reading(&mut self, rule: &str, metric: &str, value: i64) -> Vec<String> {
        let sample = Sample::new(rule, Component::Gpu(FIRST), &[(metric, value)]);
        self.see(Observation::Samples(vec![sample])).await
    }

    /// The evaluation of a restarted agent.
    fn restarted(self) -> Self {
        Self::after(self.written.borrow().clone())
    }
}

fn line(code: u32) -> Observation {
    let xid = Xid {
        code,
        place: Some(SmLocation {
            gpc: 1,
            tpc: 2,
            sm: 0,
        }),
        ..Xid::default()
    };
    let mut cursor = Cursor::default();
    cursor.accept("boot", u64::from(code));
    let bus = muster_health::kernel_log::BusId {
        domain: 0,
        bus: 15,
        device: 0,
    };
    Observation::Line {
        event: Event::Xid {
            bus,
            gpu: Some(FIRST),
            xid,
        },
        text: format!("NVRM: Xid {code}"),
        cursor: Some(cursor),
    }
}

#[tokio::test]
async fn an_xid_from_two_sources_is_reported_once() {
    let mut rig = Rig::new();
    let fatal = vec!["gpu 1 xid fatal policy=3".to_owned()];
    assert_eq!(rig.see(line(79)).await, fatal);
    assert!(rig.see(line(79)).await.is_empty());
    assert!(rig.health(FIRST, faulted("xid-79", "")).await.is_empty());
    assert_eq!(rig.see(line(48)).await, fatal);
    let user = rig.see(line(13)).await;
    assert_eq!(user, ["gpu 1 xid warn policy=1"]);
    assert_eq!(
        rig.evaluator.waiting.back().unwrap().1.cluster,
        Some((1, 2))
    );
    // A test message of the management bus.
    assert!(rig.see(line(106)).await.is_empty());
    assert!(
        rig.evaluator.known_faults.xid_of(FIRST).is_some()
            && rig.evaluator.known_faults.xid_of(SECOND).is_none()
    );
    let other = rig.health(SECOND, faulted("xid-79", "")).await;
    assert_eq!(other, ["gpu 2 xid fatal policy=3"]);
}

#[tokio::test(start_paused = true)]
async fn every_xid_of_the_driver_is_judged_and_the_more_detailed_line_comes_first() {
    let mut rig = Rig::new();
    let findings = rig.see(Observation::Xid(FIRST, 48)).await;
    assert_eq!(findings, ["gpu 1 xid fatal policy=3"]);
    // One that no list names, and one that the program itself causes.
    let findings = rig.see(Observation::Xid(FIRST, 63)).await;
    assert_eq!(findings.len(), 1, "{findings:?}");
    let findings = rig.see(Observation::Xid(FIRST, 31)).await;
    assert_eq!(findings, ["gpu 1 xid warn policy=1"]);
    // Its location is only in the kernel's log line, which gets a moment to arrive.
    assert!(rig.see(Observation::Xid(FIRST, 13)).await.is_empty());
    assert_eq!(rig.see(line(13)).await, ["gpu 1 xid warn policy=1"]);
    assert_eq!(
        rig.evaluator.waiting.back().unwrap().1.cluster,
        Some((1, 2))
    );
    assert!(rig.see(Observation::LateXid(FIRST, 13)).await.is_empty());
    // Without a log line the code is enough.
    let findings = rig.see(Observation::LateXid(SECOND, 13)).await;
    assert_eq!(findings, ["gpu 2 xid warn policy=1"]);
}

#[tokio::test]
async fn only_unacknowledged_findings_are_reported_again_by_the_next_agent() {
    let mut rig = Rig::new();
    rig.health(FIRST, faulted("xid-79", "")).await;
    rig.see(line(48)).await;
    assert_eq!(rig.written.borrow().unacknowledged.len(), 2);
    rig.see(Observation::Acknowledged(1)).await;
    let mut rig = rig.restarted();
    let again = rig.health(FIRST, faulted("xid-79", "")).await;
    assert_eq!(again, ["gpu 1 xid fatal policy=3"]);
    assert_eq!(rig.evaluator.waiting[0].1.code, Some(48));
    // The next agent restarts the sequence numbers.
    rig.see(Observation::Acknowledged(1)).await;
    let rig = rig.restarted();
    assert!(rig.evaluator.found.is_empty());
    let mut cursor = Cursor::default();
    cursor.accept("boot", 48);
    assert_eq!(rig.evaluator.notes.cursor, cursor);
}

#[tokio::test]
async fn a_signal_is_judged_by_its_rule_and_its_end_is_reported_where_a_reading_clears_it() {
    let mut rig = Rig::new();
    let lost = rig.health(FIRST, faulted("gpu-lost", "")).await;
    assert_eq!(lost, ["gpu 1 gpu_lost fatal lost=1"]);
    assert!(
        rig.health(FIRST, faulted("gpu-lost", "again"))
            .await
            .is_empty()
    );
    // Only a check clears it.
    assert!(rig.health(FIRST, GpuHealth::Healthy).await.is_empty());
    let held = rig.health(FIRST, faulted("memory-held", "2048 MiB")).await;
    assert_eq!(held, ["gpu 1 mem_leak degraded held_mib=1"]);
    let free = rig.health(FIRST, GpuHealth::Healthy).await;
    assert_eq!(free, ["gpu 1 mem_leak healthy held_mib=0"]);
    assert!(
        rig.health(FIRST, faulted("task-stuck", ""))
            .await
            .is_empty()
    );
    let mismatch = || faulted("driver-version-mismatch", "");
    let first = rig.health(FIRST, mismatch()).await;
    assert_eq!(first, ["host driver_lib_mismatch degraded mismatch=1"]);
    assert!(rig.health(SECOND, mismatch()).await.is_empty());
    assert!(rig.health(FIRST, GpuHealth::Healthy).await.is_empty());
    let over = rig.health(SECOND, GpuHealth::Healthy).await;
    assert_eq!(over, ["host driver_lib_mismatch healthy mismatch=0"]);
}

#[tokio::test]
async fn silence_of_the_driver_is_reported_for_the_host_and_hides_no_fault() {
    let mut rig = Rig::new();
    rig.health(FIRST, faulted("ecc-uncorrectable", "")).await;
    let silent = rig.health(FIRST, faulted("no-data", "")).await;
    assert_eq!(silent, ["host nvml_latency fatal unfinished_s=120"]);
    assert!(rig.health(SECOND, faulted("no-data", "")).await.is_empty());
    let fault = faulted("ecc-uncorrectable", "");
    assert!(rig.health(FIRST, fault).await.is_empty());
    let sweep = || {
        let metrics = [("sweep_ms", 7), ("unfinished_s", 0)];
        Observation::Samples(vec![Sample::new("nvml_latency", THIS_HOST, &metrics)])
    };
    assert!(rig.see(sweep()).await.is_empty() && rig.see(sweep()).await.is_empty());
    assert_eq!(rig.see(sweep()).await, ["host nvml_latency healthy =0"]);
}

#[tokio::test]
async fn a_reading_is_reported_when_it_crosses_its_threshold_also_across_a_restart() {
    let mut rig = Rig::new();
    let rule = "gpu_recovery_action";
    assert!(rig.reading(rule, "action", 0).await.is_empty());
    let reached = rig.reading(rule, "action", 1).await;
    assert_eq!(reached, ["gpu 1 gpu_recovery_action fatal action=1"]);
    assert!(rig.reading(rule, "action", 1).await.is_empty());
    rig.see(Observation::Acknowledged(1)).await;
    let mut rig = rig.restarted();
    assert!(rig.reading(rule, "action", 1).await.is_empty());
    let left = rig.reading(rule, "action", 0).await;
    assert_eq!(left, ["gpu 1 gpu_recovery_action healthy =0"]);
    rig.reading(rule, "action", 1).await;
    // After a repair, earlier readings are void.
    rig.see(Observation::Repaired(Component::Gpu(FIRST))).await;
    assert_eq!(rig.reading(rule, "action", 1).await.len(), 1);
    assert!(rig.reading("unknown", "action", 1).await.is_empty());
}

#[tokio::test]
async fn signs_of_the_host_follow_their_rules() {
    let mut rig = Rig::new();
    let mut oops = async || {
        let sign = HostFinding {
            rule: "kernel_panic",
            metric: "oops",
            value: 1,
            bus: None,
        };
        let text = "BUG: unable to handle".to_owned();
        let event = Event::Host(sign);
        let seen = Observation::Line {
            event,
            text,
            cursor: None,
        };
        rig.see(seen).await
    };
    assert_eq!(oops().await, ["host kernel_panic degraded oops=1"]);
    assert_eq!(oops().await, ["host kernel_panic fatal oops=1"]);
    let gap = rig.see(Observation::Lost(7)).await;
    assert_eq!(gap, ["host kernel_log_gap degraded lost=7"]);
    let mut scanner = Scanner::new(TrustedWriters::Kernel, Cursor::default(), BusMap::default());
    let raw = "3,1,1,-;nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30";
    let event = scanner.read("boot", raw).unwrap().event.unwrap();
    let seen = Observation::Line {
        event,
        text: String::new(),
        cursor: None,
    };
    assert_eq!(rig.see(seen).await, ["host sxid_fatal fatal fatal=1"]);
}

#[tokio::test]
async fn a_check_is_reported_when_its_result_changes_and_not_without_a_result() {
    let mut rig = Rig::new();
    let mut checked = async |end: CheckEnd| {
        let result = read(Dialect::Nagios, end, "DISK");
        rig.see(Observation::Checked("disk".to_owned(), result))
            .await
    };
    assert!(checked(CheckEnd::Exited(0)).await.is_empty());
    assert!(checked(CheckEnd::Exited(3)).await.is_empty());
    let bad = ["host check:disk fatal result=2"];
    assert_eq!(checked(CheckEnd::Exited(2)).await, bad);
    assert!(checked(CheckEnd::Exited(2)).await.is_empty());
    assert!(checked(CheckEnd::NotStarted).await.is_empty());
    let better = ["host check:disk degraded result=1"];
    assert_eq!(checked(CheckEnd::Exited(1)).await, better);
    let well = ["host check:disk healthy result=0"];
    assert_eq!(checked(CheckEnd::Exited(0)).await, well);
}

#[tokio::test]
async fn rules_that_cannot_be_fetched_leave_those_in_force() {
    let mut rig = Rig::new();
    rig.see(Observation::Rules(Revision(7), 0)).await;
    assert_eq!(rig.evaluator.revision, Revision(0));
    let mut rules = RuleSet::shipped().unwrap();
    rules.rules.retain(|rule| rule.id != "gpu_recovery_action");
    let rules = KnownRules { set: rules, sum: 7 };
    rig.see(Observation::Fetched(Revision(7), Box::new(rules)))
        .await;
    assert_eq!(rig.evaluator.revision, Revision(7));
    assert!(
        rig.reading("gpu_recovery_action", "action", 1)
            .await
            .is_empty()
    );
}

#[test]
fn the_drivers_release_is_the_first_number_of_its_version() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("proc/driver/nvidia");
    std::fs::create_dir_all(&folder).unwrap();
    let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release\n\
                GCC version:  gcc version 13.3.0\n";
    std::fs::write(folder.join("version"), text).unwrap();
    assert_eq!(release(home.path()), Some(580));
    assert_eq!(release(&home.path().join("elsewhere")), None);
}

#[tokio::test]
async fn ten_thousand_lines_are_read_to_the_last_and_reported_once() {
    const LINES: u64 = 10_000;
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("kmsg");
    let line = |sequence: u64| {
        // Two codes repeatedly, and a third one once.
        let code = match sequence {
            5_000 => 79,
            even if even.is_multiple_of(2) => 94,
            _ => 31,
        };
        format!("12,{sequence},1,-;NVRM: Xid (PCI:0000:0f:00): {code}, pid=7\n")
    };
    let text: String = (1..=LINES).map(line).collect();
    std::fs::write(&path, text).unwrap();
    let mut buses = BusMap::default();
    let bus = muster_health::kernel_log::BusId::parse("0000:0f:00.0").unwrap();
    buses.learn(bus, FIRST);
    let scanner = Scanner::new(TrustedWriters::Tests, Cursor::default(), buses);
    let (sender, mut seen) = mpsc::channel(crate::limits::HEALTH_OBSERVATIONS_MAX);
    let log = crate::health::kernel_log::KernelLog::new(&path, "boot", scanner, sender);
    let thread = std::thread::spawn(move || log.run());
    let mut rig = Rig::new();
    for _ in 1..LINES {
        rig.evaluator.see(seen.recv().await.unwrap());
    }
    let mut findings = rig.see(seen.recv().await.unwrap()).await;
    drop(seen);
    thread.join().unwrap();
    findings.sort();
    let expected = [
        "gpu 1 xid degraded policy=2",
        "gpu 1 xid fatal policy=3",
        "gpu 1 xid warn policy=1",
    ];
    assert_eq!(findings, expected);
}

/// A reboot as a repair clears the findings of its host: those that still hold are reported again, as are
/// those that do not.
#[tokio::test(start_paused = true)]
async fn findings_from_before_a_reboot_are_reported_as_over_or_still_present() {
    let of_host = |metrics: &[(&str, i64)], rule: &str| {
        Observation::Samples(vec![Sample::new(rule, THIS_HOST, metrics)])
    };
    let full = || of_host(&[("refused", 1)], "disk_free");
    let readonly = |readonly| of_host(&[("readonly", readonly)], "fs_readonly");
    let mut rig = Rig::new();
    assert_eq!(rig.see(full()).await, ["host disk_free fatal refused=1"]);
    let found = ["host fs_readonly fatal readonly=1"];
    assert_eq!(rig.see(readonly(1)).await, found);
    let mut notes = rig.written.borrow().clone();
    notes.unacknowledged.clear();
    let mut restarted = Rig::after(notes.clone());
    assert!(
        restarted.see(readonly(1)).await.is_empty(),
        "it was reported"
    );
    notes.are_of_another_boot = true;
    let mut booted = Rig::after(notes);
    assert_eq!(booted.see(readonly(1)).await, found);
    let room = of_host(&[("refused", 0), ("free_permille", 500)], "disk_free");
    assert_eq!(booted.see(room).await, ["host disk_free healthy =0"]);
}

/// After an agent's restart, and when a leader sets the rules that are already in force, only their
/// revision is new.
#[tokio::test(start_paused = true)]
async fn rules_with_a_known_checksum_are_adopted_without_a_fetch() {
    let mut rig = Rig::new();
    let sum = RuleSet::fingerprint(RuleSet::SHIPPED_TEXT);
    rig.see(Observation::Rules(Revision(3), sum)).await;
    assert_eq!(rig.evaluator.revision, Revision(3));
    // Without a fingerprint, or with a different one, the rules are fetched.
    for (revision, sum) in [(4, 0), (5, sum + 1)] {
        rig.see(Observation::Rules(Revision(revision), sum)).await;
        assert_eq!(rig.evaluator.revision, Revision(3));
    }
}

fn counted(recovered_at: u64, findings: &[(&str, Component)]) -> Observation {
    Observation::Counted(CountedFindings {
        recovered_at: Revision(recovered_at),
        findings: findings
            .iter()
            .map(|(rule, component)| FindingKey {
                rule: (*rule).to_owned(),
                component: component.clone(),
            })
            .collect(),
    })
}

/// The cluster was recovered from a backup made while the mount hung: the agent has been restarted since,
/// and knows nothing of it.
#[tokio::test(start_paused = true)]
async fn a_fault_that_only_the_cluster_counts_is_reported_as_over_once_it_reads_healthy() {
    let mount = |timeouts| {
        let metrics = [("missing", 0), ("timeouts", timeouts)];
        Observation::Samples(vec![Sample::new("mount_missing", THIS_HOST, &metrics)])
    };
    let mut rig = Rig::new();
    for _ in 0..3 {
        assert!(rig.see(mount(0)).await.is_empty());
    }
    let component = Component::Host(HostId(7));
    let counts = counted(100, &[("mount_missing", component)]);
    assert!(rig.see(counts).await.is_empty());
    assert_eq!(rig.see(mount(0)).await, ["host mount_missing healthy =0"]);
    assert!(rig.see(mount(0)).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_recovered_cluster_receives_standing_findings_again_and_no_other_one_does() {
    let full = || {
        let metrics = [("refused", 1)];
        Observation::Samples(vec![Sample::new("disk_free", THIS_HOST, &metrics)])
    };
    let mut rig = Rig::new();
    let found = ["host disk_free fatal refused=1"];
    assert_eq!(rig.see(full()).await, found);
    let held = ["gpu 1 mem_leak degraded held_mib=1"];
    assert_eq!(rig.health(FIRST, faulted("memory-held", "")).await, held);
    assert!(rig.see(full()).await.is_empty());
    // The leader knows both.
    let both = [
        ("disk_free", Component::Host(HostId(7))),
        ("mem_leak", Component::Gpu(FIRST)),
    ];
    assert!(rig.see(counted(0, &both)).await.is_empty());
    assert!(rig.see(full()).await.is_empty());
    let mut restarted = rig.restarted();
    restarted.evaluator.forward_findings().await;
    while restarted.incoming.try_recv().is_ok() {}
    assert!(restarted.see(full()).await.is_empty());
    assert_eq!(restarted.see(counted(100, &[])).await, held);
    assert_eq!(restarted.see(full()).await, found);
    // Once for each recovery, also across a restart.
    let mut next = restarted.restarted();
    next.evaluator.forward_findings().await;
    while next.incoming.try_recv().is_ok() {}
    assert!(next.see(counted(100, &[])).await.is_empty());
    assert!(next.see(full()).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn signals_and_site_checks_are_compared_once_they_are_known() {
    let mut rig = Rig::new();
    let counts = counted(
        0,
        &[
            ("mem_leak", Component::Gpu(FIRST)),
            ("mem_leak", Component::Gpu(SECOND)),
            ("check:disk", Component::Host(HostId(7))),
            ("xid", Component::Gpu(FIRST)),
        ],
    );
    assert!(rig.see(counts).await.is_empty());
    let free = rig.health(FIRST, GpuHealth::Healthy).await;
    assert_eq!(free, ["gpu 1 mem_leak healthy held_mib=0"]);
    let held = rig.health(SECOND, faulted("memory-held", "")).await;
    assert_eq!(held, ["gpu 2 mem_leak degraded held_mib=1"]);
    let result = || {
        let result = read(Dialect::Nagios, CheckEnd::Exited(0), "DISK");
        Observation::Checked("disk".to_owned(), result)
    };
    let well = ["host check:disk healthy result=0"];
    assert_eq!(rig.see(result()).await, well);
    assert!(rig.see(result()).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_counted_site_check_that_fails_again_is_reported_once() {
    let mut rig = Rig::new();
    let counts = counted(0, &[("check:disk", Component::Host(HostId(7)))]);
    assert!(rig.see(counts).await.is_empty());
    let failed = || {
        let result = read(Dialect::Nagios, CheckEnd::Exited(2), "DISK");
        Observation::Checked("disk".to_owned(), result)
    };
    let bad = ["host check:disk fatal result=2"];
    assert_eq!(rig.see(failed()).await, bad);
    assert!(rig.see(failed()).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_the_rack_is_compared_gpu_by_gpu() {
    let mut rig = Rig::new();
    // The rule asks for 12 readings of 20.
    for _ in 1..12 {
        assert!(rig.reading("power_brake", "braked", 1).await.is_empty());
    }
    let braked = rig.reading("power_brake", "braked", 1).await;
    assert_eq!(braked, ["gpu 1 power_brake degraded braked=1"]);
    let counts = counted(0, &[("power_brake", Component::Host(HostId(7)))]);
    assert!(rig.see(counts).await.is_empty());
    let again = rig.reading("power_brake", "braked", 1).await;
    assert!(again.is_empty(), "{again:?}");
}
