//! Tests of repairs and checks: the programs that run and the reports.

use std::sync::mpsc::sync_channel;

use muster_health::rules::RuleSet;
use muster_model::ids::HostId;
use muster_model::time::TimeMs;

use super::*;
use crate::gpu::{HealthChange, faulted};
use crate::health::repairs::active::{MISCOMPARE, MISCOMPARES, figures};
use crate::reports::report_channel;

/// Executes one order and returns its result.
struct Rig {
    gpus: Vec<GpuDescription>,
    shown: watch::Sender<BTreeMap<GpuUuid, GpuHealth>>,
    injected: std::sync::mpsc::Receiver<HealthChange>,
    injector: Injector,
    known_faults: KnownFaults,
    config: HealthConfig,
    home: tempfile::TempDir,
    is_thorough: bool,
}

impl Rig {
    fn new() -> Self {
        let gpus: Vec<GpuDescription> = (0..2)
            .map(|index| GpuDescription {
                uuid: GpuUuid(u128::from(index) + 1),
                index,
                model: "H100".to_owned(),
                memory_mib: 81_920,
            })
            .collect();
        let healthy = gpus.iter().map(|gpu| (gpu.uuid, GpuHealth::Healthy));
        let (injector, injected) = sync_channel(8);
        Self {
            shown: watch::channel(healthy.collect()).0,
            gpus,
            injected,
            injector,
            known_faults: KnownFaults::default(),
            config: HealthConfig::default(),
            home: tempfile::tempdir().unwrap(),
            is_thorough: false,
        }
    }

    async fn order(
        &self,
        is_simulated: bool,
        component: Component,
        action: DeviceAction,
    ) -> Outcome {
        self.order_and_see(is_simulated, component, action).await.0
    }

    /// An executor whose output is not read.
    fn executor(&self) -> RepairExecutor {
        let (reports, seen) = (report_channel().0, mpsc::channel(8).0);
        let gpus = Gpus {
            described: self.gpus.clone(),
            is_simulated: true,
            injector: self.injector.clone(),
            shown: self.shown.subscribe(),
            known_faults: self.known_faults.clone(),
        };
        let mark = self.home.path().join("reboot-ordered");
        let config = self.config.clone();
        RepairExecutor::new(config, gpus, LeaseClock::start(), mark, seen, reports)
    }

    /// Also returns the samples sent to the rule evaluation.
    async fn order_and_see(
        &self,
        is_simulated: bool,
        component: Component,
        action: DeviceAction,
    ) -> (Outcome, Vec<Observation>) {
        let (reports, mut incoming) = report_channel();
        let (seen, mut observations) = mpsc::channel(8);
        let gpus = Gpus {
            described: self.gpus.clone(),
            is_simulated,
            injector: self.injector.clone(),
            shown: self.shown.subscribe(),
            known_faults: self.known_faults.clone(),
        };
        let mark = self.home.path().join("reboot-ordered");
        let executor = RepairExecutor::new(
            self.config.clone(),
            gpus,
            LeaseClock::start(),
            mark,
            seen,
            reports,
        );
        let order = Order {
            component,
            action,
            since: TimeMs(7),
            rule: "fabric_manager".to_owned(),
            is_thorough: self.is_thorough,
        };
        executor.carry_out(order.clone()).await;
        let Some(MonitorReport::OrderDone(done)) = incoming.recv().await else {
            unreachable!("an order has an end")
        };
        assert_eq!(done.order, order);
        let observations = std::iter::from_fn(|| observations.try_recv().ok()).collect();
        ((done.passed, done.evidence), observations)
    }
}

/// Repeated failures get a check that takes longer.
#[tokio::test]
async fn a_thorough_check_measures_for_longer_and_diagnoses_more() {
    let mut rig = Rig::new();
    rig.config.active_check = command("echo measured for {seconds} s");
    let first = Component::Gpu(rig.gpus[0].uuid);
    for (is_thorough, seconds, level, limit_s) in [(false, 10, "2", 600), (true, 60, "3", 2_400)] {
        rig.is_thorough = is_thorough;
        let (passed, evidence) = rig.order(true, first.clone(), DeviceAction::Check).await;
        let expected = format!("measured for {seconds} s");
        assert!(passed && evidence.contains(&expected), "{evidence}");
        let course = CheckParameters {
            began: MonotonicMs(0),
            is_thorough,
        };
        let gpus: Vec<&GpuDescription> = rig.gpus.iter().collect();
        let (command, limit) = diagnostics(&gpus, course);
        assert_eq!(command.join(" "), format!("dcgmi diag -r {level} -i 0,1"));
        assert_eq!(limit, Duration::from_secs(limit_s));
    }
}

fn command(text: &str) -> Vec<String> {
    ["sh", "-c", text].map(str::to_owned).to_vec()
}

#[tokio::test]
async fn a_check_asks_the_gpus_that_it_is_about_and_the_sites_own_program() {
    let mut rig = Rig::new();
    let first = Component::Gpu(rig.gpus[0].uuid);
    let (second, host) = (Component::Gpu(rig.gpus[1].uuid), Component::Host(HostId(5)));
    rig.shown.send_modify(|shown| {
        shown.insert(rig.gpus[1].uuid, faulted("xid-79", "gone"));
    });
    assert!(rig.order(true, first.clone(), DeviceAction::Check).await.0);
    let (passed, evidence) = rig.order(true, second.clone(), DeviceAction::Check).await;
    assert!(!passed && evidence.contains("xid-79"), "{evidence}");
    let ((passed, evidence), observations) = rig
        .order_and_see(true, host.clone(), DeviceAction::Check)
        .await;
    assert!(
        passed && evidence.contains("1 of 2 GPUs pass"),
        "{evidence}"
    );
    let [Observation::Samples(samples)] = &observations[..] else {
        unreachable!("expected a report of the failing GPU: {observations:?}")
    };
    let sample = |failed| Sample::new(ACTIVE_CHECK, second.clone(), &[(FAILED, failed)]);
    assert_eq!(samples[..], [0, 1].map(sample));
    rig.config.active_check = command("echo slow {gpu} {uuid}; exit 1");
    let (passed, evidence) = rig.order(true, host, DeviceAction::Check).await;
    assert!(
        !passed && evidence.contains("0 of 2 GPUs pass"),
        "{evidence}"
    );
    let (passed, evidence) = rig.order(true, first, DeviceAction::Check).await;
    assert!(!passed && evidence.contains("slow 0 GPU-"), "{evidence}");
    let unknown = Component::Gpu(GpuUuid(99));
    assert!(!rig.order(true, unknown, DeviceAction::Check).await.0);
}

#[tokio::test]
async fn a_check_of_a_host_names_each_gpus_peers_and_one_of_a_gpu_names_none() {
    let mut rig = Rig::new();
    let (first, second) = (rig.gpus[0].uuid, rig.gpus[1].uuid);
    let file = rig.home.path().join("checked");
    let script = format!("echo $1 with $2. >> {}", file.display());
    rig.config.active_check = ["sh", "-c", &script, "check", "{uuid}", "{peers}"]
        .map(str::to_owned)
        .to_vec();
    let host = Component::Host(HostId(5));
    assert!(rig.order(true, host, DeviceAction::Check).await.0);
    let alone = Component::Gpu(first);
    assert!(rig.order(true, alone, DeviceAction::Check).await.0);
    let checked = std::fs::read_to_string(&file).unwrap();
    let expected = format!("{first} with {second}.\n{second} with {first}.\n{first} with .\n");
    assert_eq!(checked, expected);
}

#[tokio::test]
async fn wrong_results_fail_a_check_and_are_reported_however_it_ends() {
    let mut rig = Rig::new();
    let first = Component::Gpu(rig.gpus[0].uuid);
    let script = "echo starting; echo 'GEMM OK - 3 of 4096 differ|gflops=51000 miscompares=3;1;1'";
    rig.config.active_check = command(script);
    let ((passed, evidence), observations) = rig
        .order_and_see(true, first.clone(), DeviceAction::Check)
        .await;
    assert!(!passed && evidence.contains("3 of 4096"), "{evidence}");
    let sample = |wrong| Sample::new(MISCOMPARE, first.clone(), &[(MISCOMPARES, wrong)]);
    let [Observation::Samples(samples)] = &observations[..] else {
        unreachable!("expected one report: {observations:?}")
    };
    assert_eq!(samples[..], [0, 3].map(sample));
    let fast = "echo 'GEMM OK|gb_per_s=53.9GB/s;52 baseline_permille=930 miscompares=0 odd=fast'";
    rig.config.active_check = command(fast);
    let ((passed, _), observations) = rig
        .order_and_see(true, first.clone(), DeviceAction::Check)
        .await;
    let measured = [
        Sample::new(ACTIVE_CHECK, first.clone(), &[("baseline_permille", 930)]),
        Sample::new("h2d_bw", first.clone(), &[("gb_per_s", 53)]),
    ];
    let [Observation::Samples(samples)] = &observations[..] else {
        unreachable!("expected one report: {observations:?}")
    };
    assert!(passed);
    assert_eq!(samples[..], measured);
    rig.config.active_check = command("echo 'GEMM OK|miscompares=0 gb_per_s=-1'");
    let ((passed, _), observations) = rig.order_and_see(true, first, DeviceAction::Check).await;
    assert!(passed && observations.is_empty());
}

/// A GPU with half the speed of its link does not pass; one disturbed run does not fail it.
#[tokio::test]
async fn a_figure_that_is_low_is_measured_again_and_fails_the_check_if_it_stays() {
    let mut rig = Rig::new();
    let first = Component::Gpu(rig.gpus[0].uuid);
    rig.known_faults.set_rules(&RuleSet::shipped().unwrap());
    let runs = rig.home.path().join("runs");
    let of = |figures: &str| {
        let runs = runs.display();
        command(&format!("echo x >> {runs}; echo \"OK|{figures}\""))
    };
    let count = || {
        let text = std::fs::read_to_string(&runs).unwrap_or_default();
        drop(std::fs::remove_file(&runs));
        text.lines().count()
    };
    rig.config.active_check = of("gb_per_s=26 from_gb_per_s=53");
    let ((passed, evidence), observations) = rig
        .order_and_see(true, first.clone(), DeviceAction::Check)
        .await;
    assert!(
        !passed && evidence.contains("gb_per_s is 26 (rule h2d_bw: gb_per_s < 52"),
        "{evidence}"
    );
    assert_eq!((count(), observations.len()), (2, 2));
    rig.config.active_check = of("gb_per_s=53 from_gb_per_s=26");
    let (passed, evidence) = rig.order(true, first.clone(), DeviceAction::Check).await;
    assert!(
        !passed && evidence.contains("from_gb_per_s is 26"),
        "{evidence}"
    );
    assert_eq!(count(), 2);
    rig.config.active_check = of("gb_per_s=53 from_gb_per_s=53 baseline_permille=980");
    assert!(rig.order(true, first.clone(), DeviceAction::Check).await.0);
    assert_eq!(count(), 1);
    // The first run was disturbed.
    let runs_before = format!(
        "$([ $(wc -l < {}) = 1 ] && echo 30 || echo 54)",
        runs.display()
    );
    rig.config.active_check = of(&format!("gb_per_s={runs_before}"));
    let (passed, evidence) = rig.order(true, first.clone(), DeviceAction::Check).await;
    assert!(passed, "{evidence}");
    assert_eq!(count(), 2);
    // It works, but slower than such a GPU should: it passes, and is reported.
    rig.config.active_check = of("baseline_permille=900");
    let ((passed, _), observations) = rig
        .order_and_see(true, first.clone(), DeviceAction::Check)
        .await;
    assert!(passed && observations.len() == 2);
    // A rule that only observes fails nothing.
    rig.config.active_check = of("peer_gb_per_s=10 peers_direct=0");
    assert!(rig.order(true, first, DeviceAction::Check).await.0);
}

#[tokio::test]
async fn bandwidth_between_gpus_is_reported_to_its_rule() {
    let mut rig = Rig::new();
    let host = Component::Host(HostId(5));
    rig.config.active_check = command("echo 'OK|peer_gb_per_s=390 peers_direct=0'");
    let (_, observations) = rig.order_and_see(true, host, DeviceAction::Check).await;
    let Some(Observation::Samples(samples)) = observations.first() else {
        unreachable!("expected a report: {observations:?}")
    };
    let metrics = [("peer_gb_per_s", 390), ("peers_indirect", 1)];
    let first = Component::Gpu(rig.gpus[0].uuid);
    assert_eq!(samples[..], [Sample::new("peer_bw", first, &metrics)]);
}

#[tokio::test]
async fn the_shipped_check_runs_on_real_gpus_unless_the_site_configures_another() {
    let rig = Rig::new();
    let shipped = rig.home.path().join("muster-gpu-check");
    let of = |config: &HealthConfig, is_simulated| Checker::of(config, is_simulated, &shipped);
    let mut config = HealthConfig::default();
    assert_eq!(
        of(&config, false),
        Checker::default(),
        "it is not installed"
    );
    std::fs::write(&shipped, "").unwrap();
    assert_ne!(of(&config, false), Checker::default());
    assert_eq!(
        of(&config, true),
        Checker::default(),
        "simulated GPUs cannot be checked"
    );
    config.active_check = vec!["off".to_owned()];
    assert_eq!(of(&config, false), Checker::default());
    config.active_check = command("true");
    assert_ne!(of(&config, true), Checker::default());
}

#[test]
fn figures_beyond_the_range_are_clamped() {
    let figure = |output: &str| {
        let ran = ProgramResult {
            end: CheckEnd::Exited(0),
            output: output.to_owned(),
        };
        figures(&ran).get(MISCOMPARES).copied()
    };
    let most = format!("bad|miscompares={}\n", i64::MAX);
    assert_eq!(figure(&format!("{most}{most}")), Some(i64::MAX));
    let beyond = format!("bad|miscompares={}0\n", u64::MAX);
    assert_eq!(figure(&beyond), Some(i64::MAX));
    assert_eq!(
        figure("bad|miscompares=2\nworse|miscompares=3;1;1"),
        Some(5)
    );
    // A negative value does not reduce the sum.
    assert_eq!(figure("bad|miscompares=2\nodd|miscompares=-2"), Some(2));
    assert_eq!(figure("odd|miscompares=many"), None);
}

#[tokio::test]
async fn a_reset_runs_its_program_and_clears_the_gpus_faults() {
    let mut rig = Rig::new();
    let gpu = rig.gpus[1].uuid;
    let component = Component::Gpu(gpu);
    let file = rig.home.path().join("reset");
    rig.config.reset_command = command(&format!("echo {{gpu}} {{uuid}} > {}", file.display()));
    let (passed, evidence) = rig
        .order(false, component.clone(), DeviceAction::Reset)
        .await;
    assert!(passed, "{evidence}");
    let ran = std::fs::read_to_string(&file).unwrap();
    assert_eq!(ran.trim(), format!("1 {gpu}"));
    assert_eq!(rig.injected.try_recv(), Ok((gpu, GpuHealth::Healthy)));
    rig.config.reset_command = command("echo in use; exit 4");
    let (passed, evidence) = rig
        .order(false, component.clone(), DeviceAction::ResetIdle)
        .await;
    assert!(!passed && evidence.contains("4: in use"), "{evidence}");
    assert!(rig.injected.try_recv().is_err());
    assert!(rig.order(true, component, DeviceAction::Reset).await.0);
    assert_eq!(rig.injected.try_recv(), Ok((gpu, GpuHealth::Healthy)));
}

#[tokio::test]
async fn a_service_is_restarted_if_the_site_permits_it() {
    let mut rig = Rig::new();
    let file = rig.home.path().join("restarted");
    rig.config.restart_command = command(&format!("echo {{unit}} >> {}", file.display()));
    let units = ["nvidia-fabricmanager.service", "docker.service"].map(str::to_owned);
    let (passed, evidence) = rig.executor().restart_units(&units).await;
    assert!(
        !passed && evidence.contains("health.restart_units"),
        "{evidence}"
    );
    assert!(evidence.starts_with("docker.service"), "{evidence}");
    let ran = || std::fs::read_to_string(&file).unwrap();
    assert_eq!(ran(), "nvidia-fabricmanager.service\n");
    rig.config.restart_units.push("docker.service".to_owned());
    let (passed, evidence) = rig.executor().restart_units(&units).await;
    assert!(passed, "{evidence}");
    assert!(ran().ends_with("docker.service\n"));
    rig.config.restart_command = command("echo no such unit; exit 5");
    let (passed, evidence) = rig.executor().restart_units(&units).await;
    assert!(
        !passed && evidence.contains("5: no such unit"),
        "{evidence}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unconfigured_reboot_names_the_missing_setting_and_a_failed_one_the_reason() {
    let mut rig = Rig::new();
    let host = Component::Host(HostId(5));
    let (passed, evidence) = rig.order(true, host.clone(), DeviceAction::Reboot).await;
    assert!(!passed && evidence.contains("health.reboot_command"));
    let mark = rig.home.path().join("reboot-ordered");
    rig.config.reboot_command = vec!["/nonexistent/reboot".to_owned()];
    let (passed, evidence) = rig.order(true, host.clone(), DeviceAction::Reboot).await;
    assert!(
        !passed && evidence.contains("/nonexistent/reboot"),
        "{evidence}"
    );
    assert!(!mark.exists());
}
