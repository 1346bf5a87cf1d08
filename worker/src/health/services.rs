//! Services of the host that GPUs and containers need, and its clock, as systemd tells.
//!
//! Only units that are enabled count: what is installed and switched off was meant so. Where systemd is not, or not the host's own
//! (an agent in a container), nothing is read, and nothing is held against the host.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use super::program::{Ran, run};
use super::{HealthConfig, Sample, Seen, THIS_HOST};
use crate::limits::HEALTH_SERVICES_ANSWER_MAX;
use crate::session::jitter;

/// Without it, GPUs behind `NVSwitch` do not talk to each other.
const FABRIC: &[&str] = &["nvidia-fabricmanager.service"];
/// NVIDIA's others.
const OTHERS: &[&str] = &[
    "nvidia-persistenced.service",
    "nvidia-dcgm.service",
    "nvidia-imex.service",
];
/// The engines of containers that tasks run in.
const ENGINES: &[&str] = &["podman.socket", "docker.service"];
/// What is asked of each.
const PROPERTIES: &str = "--property=Id,UnitFileState,ActiveState,SubState";
/// States of a unit that does its work, or is about to.
const WORKING: [&str; 3] = ["active", "activating", "reloading"];
/// The part of `activating` in which systemd waits before it starts a unit again that has failed.
const RESTARTING: &str = "auto-restart";

/// What a worker has need of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Whether it has GPUs that are not simulated.
    pub(super) has_real_gpus: bool,
    /// Whether tasks in containers run here.
    pub(super) runs_containers: bool,
}

impl Needs {
    /// The units that matter to it.
    fn units(self) -> Vec<&'static str> {
        let of_gpus = [FABRIC, OTHERS].into_iter().filter(|_| self.has_real_gpus);
        let engines = Some(ENGINES).filter(|_| self.runs_containers);
        of_gpus.chain(engines).flatten().copied().collect()
    }
}

/// Asks again and again, until nobody listens.
pub(super) async fn repeat(config: HealthConfig, needs: Needs, seen: Sender<Seen>) {
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
        if seen.send(Seen::Samples(samples)).await.is_err() {
            return;
        }
        sleep(period - jitter(period / 10)).await;
    }
}

/// What systemd says of units; nothing if it is asked of none.
async fn ask_of_units(names: &[&str]) -> Option<String> {
    if names.is_empty() {
        return None;
    }
    let words = ["systemctl", "show", "--no-pager", PROPERTIES];
    ask(&[&words, names].concat()).await
}

/// What a program prints, if it ends well.
async fn ask(words: &[&str]) -> Option<String> {
    let command: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let ran: Ran = run(&command, HEALTH_SERVICES_ANSWER_MAX).await;
    ran.is_well().then_some(ran.output)
}

/// What `systemctl show` says of units, one block of `NAME=VALUE` each.
fn of_units(text: &str) -> Vec<Sample> {
    let blocks = text.split("\n\n").map(|block| {
        let pairs = block.lines().filter_map(|line| line.split_once('='));
        pairs.collect::<BTreeMap<&str, &str>>()
    });
    let enabled: Vec<BTreeMap<&str, &str>> = blocks
        .filter(|unit| unit.get("UnitFileState") == Some(&"enabled"))
        .collect();
    let count = |names: &[&str], is_so: fn(&BTreeMap<&str, &str>) -> bool| {
        let mut ours = { enabled.iter() }
            .filter(|unit| unit.get("Id").is_some_and(|id| names.contains(id)))
            .peekable();
        ours.peek()?;
        i64::try_from(ours.filter(|unit| is_so(unit)).count()).ok()
    };
    let is_idle = |unit: &BTreeMap<&str, &str>| {
        let state = unit.get("ActiveState");
        state.is_none_or(|state| !WORKING.contains(state))
    };
    let comes_again = |unit: &BTreeMap<&str, &str>| unit.get("SubState") == Some(&RESTARTING);
    let has_failed = |unit: &BTreeMap<&str, &str>| unit.get("ActiveState") == Some(&"failed");
    let fabric = count(FABRIC, is_idle).zip(count(FABRIC, comes_again));
    let fabric = fabric.map(|(inactive, restarting)| {
        let metrics = [("inactive", inactive), ("restarting", restarting)];
        Sample::new("fabric_manager", THIS_HOST, &metrics)
    });
    let others = count(OTHERS, is_idle);
    let others = others.map(|inactive| {
        let metrics = [("inactive", inactive.min(1))];
        Sample::new("nv_services", THIS_HOST, &metrics)
    });
    let engines = count(ENGINES, has_failed);
    let engines = engines.map(|failed| {
        let metrics = [("failed", failed.min(1))];
        Sample::new("runtime", THIS_HOST, &metrics)
    });
    [fabric, others, engines].into_iter().flatten().collect()
}

/// What `timedatectl show` says of the kernel's clock.
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

    fn told(units: &[String]) -> Vec<String> {
        let samples = of_units(&units.join("\n")).into_iter();
        let text = |sample: Sample| {
            let metrics = sample.metrics.iter();
            let metrics: Vec<String> = metrics
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
        assert_eq!(told(&well), all);
        let ill = [
            unit(fabric, "enabled", "activating", "auto-restart"),
            unit(dcgm, "enabled", "inactive", "dead"),
            unit(docker, "enabled", "failed", "failed"),
        ];
        let all = [
            "fabric_manager inactive=0 restarting=1",
            "nv_services inactive=1",
            "runtime failed=1",
        ];
        assert_eq!(told(&ill), all);
        assert_eq!(
            told(&[unit(fabric, "enabled", "failed", "failed")]),
            ["fabric_manager inactive=1 restarting=0"]
        );
        // Switched off, or not installed: nothing is said.
        let off = [
            unit(fabric, "disabled", "inactive", "dead"),
            unit(dcgm, "", "inactive", "dead"),
        ];
        assert!(told(&off).is_empty());
        assert!(of_units("").is_empty());
    }

    #[test]
    fn only_what_a_worker_has_need_of_is_asked_for() {
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
        // Other engines run no tasks of ours.
        let others = ["containerd.service", "crio.service"];
        let failed = others.map(|id| unit(id, "enabled", "failed", "failed"));
        assert!(told(&failed).is_empty());
    }

    #[test]
    fn a_clock_that_nobody_sets_is_told() {
        let read = |text| of_clock(text).map(|sample| sample.metrics[0].1);
        assert_eq!(read("NTPSynchronized=no\n"), Some(1));
        assert_eq!(read("NTPSynchronized=yes\n"), Some(0));
        assert_eq!(read("Failed to connect to bus"), None);
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_says_nothing() {
        assert_eq!(ask(&["/nonexistent/systemctl"]).await, None);
        assert_eq!(ask(&["sh", "-c", "echo x; exit 1"]).await, None);
        assert_eq!(ask(&["echo", "a=b"]).await.as_deref(), Some("a=b\n"));
    }
}
