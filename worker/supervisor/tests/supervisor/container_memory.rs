//! Memory reports at the end of containers: the engine knows about the limit, and the task's cgroups count
//! the memory only of containers below them.

use std::path::{Path, PathBuf};

use muster_model::command::{Exit, MemoryUsage, SignalSender};
use muster_supervisor::Controller;

use crate::confinement::cgroups;
use crate::containers::{access, contained};
use crate::fake_engine::{FakeEngine, json, ordinary};
use crate::inside::is_recorded;
use crate::podman::Podman;
use crate::support::{LONG_LEASE_MS, Rig, eventually};

const SIGKILL: i32 = 9;
/// Memory limit of the tasks of these tests.
const MEMORY_MIB: u64 = 32;
const MEMORY_BYTES: u64 = MEMORY_MIB << 20;
/// Exceeds that limit, as the first process of its container.
const GREEDY: &str = "exec dd if=/dev/zero of=/dev/null bs=150000000 count=1";

/// Starts a script in a container with a limit of [`MEMORY_MIB`], its runner in these cgroups.
fn start(text: &str, engine: &Path, cgroups: &[PathBuf]) -> Rig {
    let mut task = contained(text);
    task.memory_mib = MEMORY_MIB;
    Rig::start_spec(task, LONG_LEASE_MS, |spec| {
        spec.engine = Some(access(engine));
        spec.confinement.cgroups = cgroups.to_vec();
    })
}

/// Runs such a script to its end.
fn end_of(text: &str, engine: &Path, cgroups: &[PathBuf]) -> Exit {
    start(text, engine, cgroups).receive_exit()
}

/// An engine with the systemd cgroup driver, and a container that is killed, for lack of memory or not.
fn killing(out_of_memory: bool) -> FakeEngine {
    let inspected = serde_json::json!({
        "State": {"Status": "exited", "ExitCode": 128 + SIGKILL, "OOMKilled": out_of_memory},
        "Config": {"Labels": {}},
    })
    .to_string();
    FakeEngine::start(move |request, stream| match request {
        request if request.starts_with("POST /containers/create") => {
            json(stream, 201, r#"{"Id": "c1"}"#);
        }
        request if request.starts_with("POST /containers/c1/attach") => {
            let head = b"HTTP/1.1 101 UPGRADED\r\n\r\n";
            drop(std::io::Write::write_all(stream, head));
        }
        "POST /containers/c1/start" => json(stream, 204, ""),
        "POST /containers/c1/wait" => json(stream, 200, r#"{"StatusCode": 137}"#),
        "GET /containers/c1/json" => json(stream, 200, &inspected),
        request if request.starts_with("DELETE") => json(stream, 204, ""),
        request => ordinary(request, stream),
    })
}

/// Report of an end by SIGKILL: whether the limit was reached, the sender of the signal, and the memory.
fn memory_report(exit: &Exit) -> (bool, Option<SignalSender>, Option<MemoryUsage>) {
    assert_eq!((exit.signal, &exit.start_error), (Some(SIGKILL), &None));
    (exit.out_of_memory, exit.sender, exit.memory)
}

#[test]
fn out_of_memory_in_a_container_outside_the_runners_cgroup_is_reported_with_its_limit() {
    let engine = killing(true);
    let met = MemoryUsage {
        limit_bytes: MEMORY_BYTES,
        peak_bytes: MEMORY_BYTES,
    };
    let all = (true, Some(SignalSender::Kernel), Some(met));
    let runner = cgroups("elsewhere-oom", &[Controller::Memory]).unwrap_or_default();
    let exit = end_of("true", &engine.socket(), &runner);
    assert_eq!(memory_report(&exit), all);
    // The result does not depend on whether the runner has a cgroup.
    assert_eq!(memory_report(&end_of("true", &engine.socket(), &[])), all);
}

#[test]
fn memory_of_the_runner_is_not_reported_for_a_container_outside_its_cgroup() {
    let engine = killing(false);
    let runner = cgroups("elsewhere", &[Controller::Memory]).unwrap_or_default();
    let exit = end_of("true", &engine.socket(), &runner);
    assert_eq!(
        memory_report(&exit),
        (false, Some(SignalSender::Other), None)
    );
}

#[test]
fn a_container_that_runs_out_of_memory_is_reported_with_its_limit_and_peak() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let Some(ours) = cgroups("container-oom", &[Controller::Memory]) else {
        return;
    };
    let met = MemoryUsage {
        limit_bytes: MEMORY_BYTES,
        peak_bytes: MEMORY_BYTES,
    };
    // Outside the task's cgroups, once it is watched: this podman does not report the kill, and its cgroup is
    // removed with it.
    let waits = format!("until [ -e go ]; do sleep 0.05; done; {GREEDY}");
    let mut alone = start(&waits, &podman.socket(), &[]);
    eventually("its first process is on record", || is_recorded(&alone));
    std::fs::write(alone.directory.scratch().join("go"), "").unwrap();
    let alone = alone.receive_exit();
    let kernel = Some(SignalSender::Kernel);
    assert_eq!(
        memory_report(&alone),
        (true, kernel, Some(met)),
        "{alone:?}"
    );
    // Below the task's cgroup, at once.
    let below = end_of(GREEDY, &podman.socket(), &ours);
    let (out_of_memory, sender, memory) = memory_report(&below);
    assert_eq!((out_of_memory, sender), (true, kernel), "{below:?}");
    let memory = memory.unwrap();
    assert_eq!(memory.limit_bytes, MEMORY_BYTES);
    assert!(
        memory.peak_bytes > MEMORY_BYTES / 2 && memory.peak_bytes <= MEMORY_BYTES,
        "{memory:?}"
    );
    assert!(podman.containers().is_empty());
    assert!(!ours.iter().any(|path| path.exists()));
}

#[test]
fn a_container_below_our_cgroup_is_counted_there_also_if_its_memory_sufficed() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let Some(ours) = cgroups("container-memory", &[Controller::Memory]) else {
        return;
    };
    let text = "dd if=/dev/zero of=/dev/null bs=12000000 count=1; exit 3";
    let exit = end_of(text, &podman.socket(), &ours);
    assert_eq!((exit.code, exit.out_of_memory), (Some(3), false));
    let memory = exit.memory.unwrap();
    assert_eq!(memory.limit_bytes, MEMORY_BYTES);
    assert!(memory.peak_bytes > 12_000_000, "{memory:?}");
    // Elsewhere its memory is not counted.
    assert_eq!(end_of(text, &podman.socket(), &[]).memory, None);
}
