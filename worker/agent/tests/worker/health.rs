//! Tests of health findings of agents, and of the repairs and checks that they execute.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use muster_model::command::{GpuDescription, GpuHealth};
use muster_model::desired::HealthDuties;
use muster_model::health::{Component, DeviceAction, Finding, Order, Severity};
use muster_model::heartbeat::WorkDone;
use muster_model::time::TimeMs;
use muster_worker::{CheckConvention, GpuConfig, SiteCheck, WorkerConfig};

use crate::agent::Host;
use crate::support::eventually;
use crate::support::leader::{HOST, Leader};

/// Two simulated GPUs, the first at 0000:0f:00.0, and a kernel log in a file.
fn settings(config: &mut WorkerConfig, home: &Path, timeline: &str) {
    let path = home.join("timeline");
    std::fs::write(&path, timeline).unwrap();
    config.gpus = GpuConfig::Simulated {
        count: 2,
        model: "H100".to_owned(),
        memory_mib: 81_920,
        timeline: Some(path),
        pci_addresses: vec!["0000:0f:00.0".to_owned()],
    };
    config.health.kernel_log = home.join("kmsg");
    // This machine is not monitored.
    config.health.host_root = home.join("root");
    config.health.sample_ms = 20;
    File::create(&config.health.kernel_log).unwrap();
}

fn start(leader: &Leader, timeline: &str) -> Host {
    Host::start_with(&[leader], |config, home| settings(config, home, timeline))
}

/// Writes a record to a host's kernel log.
fn log(host: &Host, sequence: u64, text: &str) {
    let path = host.home.path().join("kmsg");
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    writeln!(file, "12,{sequence},5000,-;{text}").unwrap();
}

fn xid(code: u32) -> String {
    format!("NVRM: Xid (PCI:0000:0f:00): {code}, pid=7, name=python, x")
}

/// Waits for a finding of a rule with this severity.
async fn finding(leader: &Leader, rule: &str, severity: Severity) -> Finding {
    let what = format!("{rule} {severity}");
    let found = leader.eventually(&what, |inner| {
        let findings = &inner.status.as_ref()?.findings;
        let is_it = |it: &&Finding| it.rule == rule && it.severity == severity;
        findings.iter().find(is_it).cloned()
    });
    found.await
}

async fn gpu(leader: &Leader, index: usize) -> GpuDescription {
    let hello = leader.eventually("the greeting", |inner| inner.hellos.first().cloned());
    let wire = hello.await.registration.unwrap().gpus[index].clone();
    GpuDescription::try_from(wire).unwrap()
}

fn acknowledging(number: u64) -> HealthDuties {
    HealthDuties {
        acknowledged: number,
        ..HealthDuties::default()
    }
}

/// Waits until the notes of a host are written, with `waiting` unacknowledged findings.
fn noted(host: &Host, waiting: usize) {
    let path = host.home.path().join("w/health.json");
    eventually("the notes", || {
        let bytes = std::fs::read(&path).unwrap_or_default();
        let notes: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let is_read = notes["cursor"]["next"].as_u64() > Some(0);
        is_read && notes["unacknowledged"].as_array().map(Vec::len) == Some(waiting)
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_log_finding_is_resent_until_acknowledged_and_never_again() {
    let leader = Leader::start(3).await;
    let mut host = start(&leader, "");
    log(&host, 7, &xid(79));
    let found = finding(&leader, "xid", Severity::Fatal).await;
    let first = gpu(&leader, 0).await;
    assert_eq!(found.component, Component::Gpu(first.uuid));
    assert_eq!((found.sequence, found.code), (1, Some(79)));
    assert!(found.evidence.contains("name=python"), "{found:?}");
    // Without an acknowledgement it is repeated, also by the next agent.
    leader.inner().status = None;
    finding(&leader, "xid", Severity::Fatal).await;
    noted(&host, 1);
    host.kill_agent();
    leader.inner().status = None;
    host.restart_agent();
    let again = finding(&leader, "xid", Severity::Fatal).await;
    assert_eq!((again.sequence, again.code), (1, Some(79)));
    leader.set_duties(acknowledging(1));
    let forgotten = leader.eventually("nothing waits", |inner| {
        inner.status.as_ref()?.findings.is_empty().then_some(())
    });
    forgotten.await;
    noted(&host, 0);
    host.kill_agent();
    leader.set_duties(acknowledging(0));
    leader.inner().status = None;
    host.restart_agent();
    log(&host, 8, &xid(48));
    finding(&leader, "xid", Severity::Fatal).await;
    let findings = leader.inner().status.clone().unwrap().findings;
    let codes: Vec<Option<u32>> = findings.iter().map(|it| it.code).collect();
    assert_eq!(codes, [Some(48)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn findings_of_the_host_are_reported_under_its_host_id() {
    let leader = Leader::start(3).await;
    let host = start(&leader, "");
    log(&host, 1, "EXT4-fs (sda1): Remounting filesystem read-only");
    let found = finding(&leader, "fs_readonly", Severity::Fatal).await;
    assert_eq!(found.component, Component::Host(HOST));
    // Records in between were overwritten.
    log(&host, 5, "something else");
    let gap = finding(&leader, "kernel_log_gap", Severity::Degraded).await;
    assert_eq!(gap.measured, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_reported_by_the_backend_becomes_one_finding() {
    let leader = Leader::start(3).await;
    let host = start(&leader, "0,0,xid-79\n0,1,gpu-lost");
    log(&host, 1, &xid(79));
    finding(&leader, "gpu_lost", Severity::Fatal).await;
    log(&host, 2, &xid(48));
    let is_last = |it: &Finding| it.code == Some(48);
    let findings = leader
        .eventually("the last line", |inner| {
            let findings = &inner.status.as_ref()?.findings;
            findings.iter().any(is_last).then(|| findings.clone())
        })
        .await;
    let gone = findings.iter().filter(|it| it.code == Some(79));
    assert_eq!((gone.count(), findings.len()), (1, 3), "{findings:?}");
    // The rules evaluate an XID; a lost GPU is unfit regardless of them.
    let (first, second) = (gpu(&leader, 0).await.uuid, gpu(&leader, 1).await.uuid);
    let unfit = leader.eventually("a GPU that is lost", |inner| {
        let gpus = &inner.status.as_ref()?.gpus;
        let is_lost = |(of, health): &&(_, GpuHealth)| {
            *of == second
                && matches!(health, GpuHealth::Faulted { signal, .. } if signal == "gpu-lost")
        };
        gpus.iter().find(is_lost)?;
        Some(gpus.clone())
    });
    assert!(unfit.await.contains(&(first, GpuHealth::Healthy)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_far_from_the_leaders_is_reported_and_clears_once_it_is_set() {
    let leader = Leader::start(3).await;
    leader.inner().clock_ahead_ms = Some(10_000);
    let _host = start(&leader, "");
    let found = finding(&leader, "clock_skew", Severity::Fatal).await;
    assert_eq!(found.component, Component::Host(HOST));
    assert!((9_000..11_000).contains(&found.measured), "{found:?}");
    leader.inner().clock_ahead_ms = Some(0);
    finding(&leader, "clock_skew", Severity::Healthy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reading_over_its_threshold_and_back_is_reported_twice() {
    let leader = Leader::start(3).await;
    let timeline = "0,1,metric:gpu_recovery_action.action,0\n\
                    200,1,metric:gpu_recovery_action.action,1\n\
                    5000,1,metric:gpu_recovery_action.action,0\n";
    let _host = start(&leader, timeline);
    let rule = "gpu_recovery_action";
    let over = finding(&leader, rule, Severity::Fatal).await;
    assert_eq!((over.metric.as_str(), over.measured), ("action", 1));
    assert_eq!(over.component, Component::Gpu(gpu(&leader, 1).await.uuid));
    let back = finding(&leader, rule, Severity::Healthy).await;
    assert_eq!(back.sequence, over.sequence + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_of_the_site_that_hangs_counts_as_failed() {
    let leader = Leader::start(3).await;
    let _host = Host::start_with(&[&leader], |config, home| {
        settings(config, home, "");
        let check = |name: &str, text: &str, timeout_s, dialect| SiteCheck {
            name: name.to_owned(),
            command: ["sh", "-c", text].map(str::to_owned).to_vec(),
            period_s: 1,
            timeout_s,
            dialect,
        };
        config.health.checks = vec![
            check("hang", "sleep 1000", 1, CheckConvention::Nagios),
            check(
                "mount",
                "echo ERROR: /data; exit 1",
                60,
                CheckConvention::Nhc,
            ),
            check("unknown", "exit 3", 60, CheckConvention::Nagios),
        ];
    });
    let hangs = finding(&leader, "check:hang", Severity::Fatal).await;
    assert!(hangs.evidence.contains("in time"), "{hangs:?}");
    assert_eq!(hangs.component, Component::Host(HOST));
    let mount = finding(&leader, "check:mount", Severity::Fatal).await;
    assert_eq!(mount.evidence, "ERROR: /data");
    let status = leader.inner().status.clone().unwrap();
    let names = |rule: &str| status.findings.iter().filter(|it| it.rule == rule).count();
    assert_eq!((names("check:hang"), names("check:unknown")), (1, 0));
}

/// Sends an order and waits for its result.
async fn order(leader: &Leader, component: Component, action: DeviceAction, at: u64) -> WorkDone {
    let order = Order {
        component,
        action,
        since: TimeMs(at),
        rule: String::new(),
        is_thorough: false,
    };
    leader.set_duties(HealthDuties {
        orders: vec![order.clone()],
        ..HealthDuties::default()
    });
    let done = leader.eventually("the end of an order", |inner| {
        let all = &inner.status.as_ref()?.health_work;
        all.iter().find(|done| done.order == order).cloned()
    });
    done.await
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_carried_out_and_their_end_is_reported() {
    let leader = Leader::start(3).await;
    let _host = start(&leader, "0,1,ecc-uncorrectable,3 errors");
    finding(&leader, "ecc_unc_volatile", Severity::Fatal).await;
    let first = Component::Gpu(gpu(&leader, 0).await.uuid);
    let second = gpu(&leader, 1).await.uuid;
    // The rules decide on the consequences: the worker itself does not report the GPU as unfit.
    let gpus = leader.inner().status.clone().unwrap_or_default().gpus;
    assert!(gpus.contains(&(second, GpuHealth::Healthy)), "{gpus:?}");
    let passed = order(&leader, first, DeviceAction::Check, 1).await;
    assert!(passed.passed, "{passed:?}");
    let check = |at| order(&leader, Component::Gpu(second), DeviceAction::Check, at);
    let failed = check(2).await;
    assert!(!failed.passed && failed.evidence.contains("ecc-uncorrectable"));
    let reset = order(&leader, Component::Gpu(second), DeviceAction::ResetIdle, 3).await;
    assert!(reset.passed, "{reset:?}");
    // The recovery is noticed a moment later.
    let mut at = 4;
    while !check(at).await.passed {
        at += 1;
        assert!(at < 100, "it does not recover");
    }
    let reboot = order(&leader, Component::Host(HOST), DeviceAction::Reboot, 100).await;
    assert!(!reboot.passed && reboot.evidence.contains("health.reboot_command"));
}
