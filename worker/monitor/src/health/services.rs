//! State of the host services that GPUs and containers need, and of its clock, from systemd.
//!
//! Only enabled units count: disabled ones are intended to be off. Without systemd, or with one that is not
//! the host's (an agent in a container), nothing is read, and nothing is reported.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use muster_backoff::jitter;
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use crate::health::program::{ProgramResult, run};
use crate::health::{HealthConfig, Observation, Sample, THIS_HOST};
use crate::limits::HEALTH_SERVICES_ANSWER_MAX;

/// The rules about services.
const FABRIC_MANAGER: &str = "fabric_manager";
const NV_SERVICES: &str = "nv_services";
const RUNTIME: &str = "runtime";
/// Without it, GPUs behind `NVSwitch` cannot communicate.
const FABRIC: &[&str] = &["nvidia-fabricmanager.service"];
/// NVIDIA's other services.
const OTHERS: &[&str] = &[
    "nvidia-persistenced.service",
    "nvidia-dcgm.service",
    "nvidia-imex.service",
];
/// Container engines in which tasks run.
const ENGINES: &[&str] = &["podman.socket", "docker.service"];
/// Properties read of each unit.
const PROPERTIES: &str = "--property=Id,UnitFileState,ActiveState,SubState";
/// States of a unit that runs or is about to.
const WORKING: [&str; 3] = ["active", "activating", "reloading"];
/// Substate of `activating` in which systemd waits before it restarts a failed unit.
const RESTARTING: &str = "auto-restart";

/// Services that a worker needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Whether it has GPUs that are not simulated.
    pub(super) has_real_gpus: bool,
    /// Whether this host runs tasks in containers.
    pub(super) runs_containers: bool,
}

impl Needs {
    /// The units of these services.
    fn units(self) -> Vec<&'static str> {
        let of_gpus = [FABRIC, OTHERS].into_iter().filter(|_| self.has_real_gpus);
        let engines = Some(ENGINES).filter(|_| self.runs_containers);
        of_gpus.chain(engines).flatten().copied().collect()
    }
}

/// Polls until the receiver is gone.
pub(super) async fn repeat(config: HealthConfig, needs: Needs, seen: Sender<Observation>) {
    let is_own = config.host_root == Path::new("/");
    if !is_own {
        return;
    }
    let period = Duration::from_millis(config.sample_ms);
    loop {
        let units = ask_of_units(&needs.units()).await;
        let clock = ask(&["timedatectl", "show", "--property=NTPSynchronized"]).await;
        let mut samples = units.map_or_else(Vec::new, |text| of_units(&text));
        samples.extend(clock.and_then(|text| of_clock(&text)));
        if seen.send(Observation::Samples(samples)).await.is_err() {
            return;
        }
        sleep(period - jitter(period / 10)).await;
    }
}

/// The units of a rule.
fn units_of(rule: &str) -> &'static [&'static str] {
    match rule {
        FABRIC_MANAGER => FABRIC,
        NV_SERVICES => OTHERS,
        RUNTIME => ENGINES,
        _ => &[],
    }
}

/// The units of a rule that are enabled but not running.
///
/// # Errors
/// If the rule has no units or systemd does not answer.
pub(super) async fn failed_units(rule: &str) -> Result<Vec<String>, String> {
    let units = units_of(rule);
    if units.is_empty() {
        return Err(format!("rule {rule} covers no service that a worker knows"));
    }
    let output = ask_of_units(units)
        .await
        .ok_or_else(|| "systemd does not report the state of services".to_owned())?;
    Ok(failed_units_in(&output))
}

fn failed_units_in(text: &str) -> Vec<String> {
    let idle = enabled(text).into_iter().filter(is_idle);
    idle.filter_map(|unit| unit.get("Id").map(|id| (*id).to_owned()))
        .collect()
}

/// Output of systemctl about units; empty if there are none to query.
async fn ask_of_units(names: &[&str]) -> Option<String> {
    if names.is_empty() {
        return None;
    }
    let arguments = ["systemctl", "show", "--no-pager", PROPERTIES];
    ask(&[&arguments, names].concat()).await
}

/// Output of a program, if it exits with 0.
async fn ask(arguments: &[&str]) -> Option<String> {
    let command: Vec<String> = arguments
        .iter()
        .map(|argument| (*argument).to_owned())
        .collect();
    let ran: ProgramResult = run(&command, HEALTH_SERVICES_ANSWER_MAX).await;
    ran.succeeded().then_some(ran.output)
}

/// Properties of a unit by name.
type Unit<'a> = BTreeMap<&'a str, &'a str>;

/// The enabled units in the output of `systemctl show`, one block of `NAME=VALUE` lines each.
fn enabled(text: &str) -> Vec<Unit<'_>> {
    let blocks = text.split("\n\n").map(|block| {
        let pairs = block.lines().filter_map(|line| line.split_once('='));
        pairs.collect::<Unit<'_>>()
    });
    blocks
        .filter(|unit| unit.get("UnitFileState") == Some(&"enabled"))
        .collect()
}

fn is_idle(unit: &Unit<'_>) -> bool {
    let state = unit.get("ActiveState");
    state.is_none_or(|state| !WORKING.contains(state))
}

/// Samples from the enabled units.
fn of_units(text: &str) -> Vec<Sample> {
    let enabled = enabled(text);
    let count = |names: &[&str], is_so: fn(&BTreeMap<&str, &str>) -> bool| {
        let mut ours = enabled
            .iter()
            .filter(|unit| unit.get("Id").is_some_and(|id| names.contains(id)))
            .peekable();
        ours.peek()?;
        i64::try_from(ours.filter(|unit| is_so(unit)).count()).ok()
    };
    let comes_again = |unit: &BTreeMap<&str, &str>| unit.get("SubState") == Some(&RESTARTING);
    let has_failed = |unit: &BTreeMap<&str, &str>| unit.get("ActiveState") == Some(&"failed");
    let fabric =
        count(FABRIC, is_idle)
            .zip(count(FABRIC, comes_again))
            .map(|(inactive, restarting)| {
                let metrics = [("inactive", inactive), ("restarting", restarting)];
                Sample::new(FABRIC_MANAGER, THIS_HOST, &metrics)
            });
    let others = count(OTHERS, is_idle).map(|inactive| {
        let metrics = [("inactive", inactive.min(1))];
        Sample::new(NV_SERVICES, THIS_HOST, &metrics)
    });
    let engines = count(ENGINES, has_failed).map(|failed| {
        let metrics = [("failed", failed.min(1))];
        Sample::new(RUNTIME, THIS_HOST, &metrics)
    });
    [fabric, others, engines].into_iter().flatten().collect()
}

/// Sample from the output of `timedatectl show`.
fn of_clock(text: &str) -> Option<Sample> {
    let unsynchronised = match text.trim().strip_prefix("NTPSynchronized=")? {
        "yes" => 0,
        "no" => 1,
        _ => return None,
    };
    let metrics = [("unsynchronised", unsynchronised)];
    Some(Sample::new("clock_sync", THIS_HOST, &metrics))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(id: &str, file: &str, active: &str, sub: &str) -> String {
        format!("Id={id}\nUnitFileState={file}\nActiveState={active}\nSubState={sub}\n")
    }

    fn samples_of(units: &[String]) -> Vec<String> {
        let samples = of_units(&units.join("\n")).into_iter();
        let text = |sample: Sample| {
            let metrics: Vec<String> = sample
                .metrics
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            format!("{} {}", sample.rule, metrics.join(" "))
        };
        samples.map(text).collect()
    }

    #[test]
    fn services_are_judged_by_their_state_if_they_are_enabled() {
        let fabric = "nvidia-fabricmanager.service";
        let (dcgm, docker) = ("nvidia-dcgm.service", "docker.service");
        let well = [
            unit(fabric, "enabled", "active", "running"),
            unit(dcgm, "enabled", "active", "running"),
            unit(docker, "enabled", "active", "running"),
            unit("podman.socket", "", "inactive", "dead"),
        ];
        let all = [
            "fabric_manager inactive=0 restarting=0",
            "nv_services inactive=0",
            "runtime failed=0",
        ];
        assert_eq!(samples_of(&well), all);
        let faulty = [
            unit(fabric, "enabled", "activating", "auto-restart"),
            unit(dcgm, "enabled", "inactive", "dead"),
            unit(docker, "enabled", "failed", "failed"),
        ];
        let all = [
            "fabric_manager inactive=0 restarting=1",
            "nv_services inactive=1",
            "runtime failed=1",
        ];
        assert_eq!(samples_of(&faulty), all);
        assert_eq!(
            samples_of(&[unit(fabric, "enabled", "failed", "failed")]),
            ["fabric_manager inactive=1 restarting=0"]
        );
        // Disabled or not installed: no sample.
        let off = [
            unit(fabric, "disabled", "inactive", "dead"),
            unit(dcgm, "", "inactive", "dead"),
        ];
        assert!(samples_of(&off).is_empty());
        assert!(of_units("").is_empty());
    }

    #[tokio::test]
    async fn services_to_restart_are_enabled_and_not_running() {
        let fabric = "nvidia-fabricmanager.service";
        let units = [
            unit(fabric, "enabled", "failed", "failed"),
            unit("docker.service", "enabled", "active", "running"),
            unit("podman.socket", "disabled", "inactive", "dead"),
        ];
        assert_eq!(failed_units_in(&units.join("\n")), [fabric]);
        let error = failed_units("disk_free").await;
        assert!(error.is_err_and(|why| why.contains("disk_free")));
    }

    #[test]
    fn only_services_that_a_worker_needs_are_queried() {
        let units = |has_real_gpus, runs_containers| {
            let needs = Needs {
                has_real_gpus,
                runs_containers,
            };
            needs.units().len()
        };
        assert_eq!(units(false, false), 0);
        assert_eq!(units(true, false), FABRIC.len() + OTHERS.len());
        assert_eq!(units(false, true), ENGINES.len());
        assert_eq!(
            units(true, true),
            FABRIC.len() + OTHERS.len() + ENGINES.len()
        );
        // Muster runs no tasks in other engines.
        let others = ["containerd.service", "crio.service"];
        let failed = others.map(|id| unit(id, "enabled", "failed", "failed"));
        assert!(samples_of(&failed).is_empty());
    }

    #[test]
    fn an_unsynchronised_clock_is_reported() {
        let read = |text| of_clock(text).map(|sample| sample.metrics[0].1);
        assert_eq!(read("NTPSynchronized=no\n"), Some(1));
        assert_eq!(read("NTPSynchronized=yes\n"), Some(0));
        assert_eq!(read("Failed to connect to bus"), None);
    }

    #[tokio::test]
    async fn a_missing_program_gives_no_output() {
        assert_eq!(ask(&["/nonexistent/systemctl"]).await, None);
        assert_eq!(ask(&["sh", "-c", "echo x; exit 1"]).await, None);
        assert_eq!(ask(&["echo", "a=b"]).await.as_deref(), Some("a=b\n"));
    }
}
