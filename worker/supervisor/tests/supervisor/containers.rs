//! Tasks in containers: with a real engine where available, and with a fake one that fails on demand.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use muster_model::command::{Exit, SignalSender};
use muster_model::desired::TaskAssignment;
use muster_model::ids::GpuUuid;
use muster_model::spec::{Container, Mount, PullPolicy, StopWarning, Ulimit, UlimitKind};
use muster_supervisor::container::{ContainerRemains, Engine, end};
use muster_supervisor::{AgentRequest, EngineAccess, SupervisorMessage};

use crate::fake_engine::{FakeEngine, json, ordinary};
use crate::podman::{IMAGE, Podman};
use crate::support::{LONG_LEASE_MS, Rig, eventually, script};

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;
const SIGUSR1: i32 = 10;
/// Id of the worker in these tests.
pub(crate) const WORKER: &str = "worker-of-tests";

pub(crate) fn access(socket: &Path) -> EngineAccess {
    EngineAccess {
        socket: socket.to_owned(),
        worker: WORKER.to_owned(),
        has_real_gpus: true,
        registry_auth_file: None,
    }
}

impl Podman {
    /// The engine.
    fn engine(&self) -> Engine {
        Engine::at(&self.socket())
    }
}

/// A shell script in a container.
pub(crate) fn contained(text: &str) -> TaskAssignment {
    let mut task = script(text);
    // By default, podman sets a higher limit than some hosts allow.
    let limit = Ulimit {
        soft: Some(1_024),
        hard: Some(4_096),
    };
    task.execution.ulimits = [(UlimitKind::Nofile, limit), (UlimitKind::Nproc, limit)].into();
    task.execution.container = Some(Container {
        image: IMAGE.to_owned(),
        ..Container::default()
    });
    task
}

pub(crate) fn container(task: &mut TaskAssignment) -> &mut Container {
    task.execution.container.as_mut().unwrap()
}

pub(crate) fn start(task: TaskAssignment, socket: &Path) -> Rig {
    start_leased(task, socket, LONG_LEASE_MS)
}

fn start_leased(task: TaskAssignment, socket: &Path, lease_ms: u64) -> Rig {
    Rig::start_spec(task, lease_ms, |spec| spec.engine = Some(access(socket)))
}

pub(crate) fn text_of(rig: &Rig) -> String {
    String::from_utf8(rig.output()).unwrap()
}

fn ended(code: Option<i32>, signal: Option<i32>) -> Exit {
    Exit {
        code,
        signal,
        ..Exit::default()
    }
}

#[test]
fn a_container_has_the_tasks_world_and_its_end_is_the_tasks() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let shared = tempfile::tempdir().unwrap();
    std::fs::write(shared.path().join("data"), "from the host\n").unwrap();
    let mut task = contained(
        "cat /data/data; touch /data/x || echo read-only; touch $MUSTER_CKPT_DIR/y && echo writes; \
         echo error >&2; env; id -u; df -k /dev/shm; cat $MUSTER_CTL_DIR/none; exit 3",
    );
    task.environment = [("MINE".to_owned(), "1".to_owned())].into();
    let asked = container(&mut task);
    asked.mounts = vec![Mount {
        source: shared.path().display().to_string(),
        target: "/data".to_owned(),
        read_only: true,
    }];
    asked.user = Some("1234:1234".to_owned());
    asked.shm_mib = Some(8);
    asked.entrypoint = vec!["env".to_owned(), "LAUNCHED=1".to_owned()];
    let mut rig = start(task, &podman.socket());
    let evidence = "touch: /data/x: Read-only file system".to_owned();
    assert_eq!(
        rig.receive_exit(),
        Exit {
            evidence,
            ..ended(Some(3), None)
        }
    );
    let output = text_of(&rig);
    let scratch = rig.directory.scratch().display().to_string();
    for line in [
        "from the host",
        "read-only",
        "writes",
        "error",
        "MINE=1",
        "LAUNCHED=1",
        "MUSTER_EPOCH=11",
        "1234",
        &format!("PWD={scratch}"),
    ] {
        assert!(
            output.lines().any(|found| found == line),
            "{line}:\n{output}"
        );
    }
    assert!(output.contains("8192"), "the size of /dev/shm:\n{output}");
    // The worker's environment is not the image's.
    assert!(!output.contains("HOME=/root") && !output.contains("container:"));
    assert!(podman.containers().is_empty());
    assert!(!rig.directory.path().join("container.json").exists());
}

#[test]
fn gpus_come_by_their_cdi_names_and_a_command_may_be_the_images() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let gpu = GpuUuid(0x1234);
    // A fictitious device kind that is visible by a variable.
    let kind = format!("muster.test/gpu{}", std::process::id());
    let folder = Path::new("/etc/cdi");
    let file = folder.join(format!("muster-test-{}.json", std::process::id()));
    let specification = serde_json::json!({
        "cdiVersion": "0.5.0", "kind": kind,
        "devices": [{"name": gpu.to_string(), "containerEdits": {"env": ["GPU_SEEN=yes"]}}],
    });
    if std::fs::create_dir_all(folder).is_err() {
        return;
    }
    std::fs::write(&file, specification.to_string()).unwrap();
    let mut task = contained("");
    task.gpus = vec![gpu];
    task.memory_mib = 64;
    task.command.clear();
    let asked = container(&mut task);
    asked.gpus = Some(format!("{kind}={{uuid}}"));
    asked.entrypoint = vec!["env".to_owned()];
    let mut rig = start(task.clone(), &podman.socket());
    let exit = rig.receive_exit();
    let output = text_of(&rig);
    // Simulated GPUs are not devices.
    let mut simulated = Rig::start_spec(task, LONG_LEASE_MS, |spec| {
        spec.engine = Some(EngineAccess {
            has_real_gpus: false,
            ..access(&podman.socket())
        });
    });
    let without = simulated.receive_exit();
    std::fs::remove_file(file).unwrap();
    assert_eq!(exit, ended(Some(0), None), "{output}");
    assert!(output.contains("GPU_SEEN=yes"), "{output}");
    assert!(output.contains(&format!("CUDA_VISIBLE_DEVICES={gpu}")));
    assert_eq!(without, ended(Some(0), None));
    assert!(!text_of(&simulated).contains("GPU_SEEN"));
}

#[test]
fn a_container_that_is_asked_to_stop_may_choose_its_exit_code() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let text = "trap 'echo asked; exit 7' TERM; echo ready; while true; do sleep 0.1; done";
    let mut rig = start(contained(text), &podman.socket());
    eventually("ready", || text_of(&rig).contains("ready"));
    rig.send(&AgentRequest::Stop {
        reason: "preempt".to_owned(),
        grace_ms: 20_000,
    });
    assert_eq!(rig.receive_exit(), ended(Some(7), None));
    assert!(text_of(&rig).contains("asked"));
    assert!(podman.containers().is_empty());
}

#[test]
fn the_jobs_own_signal_reaches_every_process_of_a_container_if_it_is_for_all() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let mut task = contained(
        "trap 'echo main >> got' USR1; trap 'exit 7' TERM;
         sh -c 'trap \"echo child >> got; exit 0\" USR1; echo up > child; while true; do sleep 0.1; done' &
         while true; do sleep 0.1; done",
    );
    task.warning = Some(StopWarning {
        signal: SIGUSR1,
        to_all: true,
        lead_ms: Some(60_000),
    });
    let mut rig = start(task, &podman.socket());
    rig.scratch_file("child");
    let record = rig.directory.path().join("container.json");
    eventually("its first process is on record", || {
        std::fs::read_to_string(&record).is_ok_and(|text| text.contains("start_ticks"))
    });
    rig.send(&AgentRequest::Stop {
        reason: "cancel".to_owned(),
        grace_ms: 60_000,
    });
    let got = rig.directory.scratch().join("got");
    eventually("both signals", || {
        let text = std::fs::read_to_string(&got).unwrap_or_default();
        text.contains("main\n") && text.contains("child\n")
    });
    rig.send(&AgentRequest::Stop {
        reason: "cancel".to_owned(),
        grace_ms: 1_000,
    });
    rig.receive_exit();
}

/// A container that counts, and prints a line when it is asked to end.
const COUNTING: &str =
    "trap 'echo asked; exit 7' TERM; while true; do echo x >> count; sleep 0.05; done";

/// Current count of a container.
fn count_of(rig: &Rig) -> u64 {
    let count = rig.directory.scratch().join("count");
    std::fs::metadata(count).map_or(0, |it| it.len())
}

/// Pauses a container that counts.
fn suspend(rig: &mut Rig, podman: &Podman) {
    eventually("it counts", || count_of(rig) > 0);
    rig.send(&AgentRequest::Suspend);
    eventually("it is paused", || {
        let paused = ["ps", "--filter", "status=paused", "--quiet"];
        !podman.run(&paused).unwrap().trim().is_empty()
    });
}

#[test]
fn a_container_is_paused_until_its_task_is_resumed() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let mut rig = start(contained(COUNTING), &podman.socket());
    suspend(&mut rig, &podman);
    let still = count_of(&rig);
    rig.send(&AgentRequest::Status);
    while !matches!(rig.receive(), SupervisorMessage::Status { .. }) {}
    assert_eq!(count_of(&rig), still, "something goes on");
    rig.send(&AgentRequest::Resume);
    eventually("it goes on", || count_of(&rig) > still + 4);
    suspend(&mut rig, &podman);
    rig.send(&AgentRequest::Stop {
        reason: "preempt".to_owned(),
        grace_ms: 20_000,
    });
    assert_eq!(rig.receive_exit(), ended(Some(7), None));
    assert!(text_of(&rig).contains("asked"));
    assert!(podman.containers().is_empty());
}

#[test]
fn a_paused_container_ends_with_its_lease() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let mut rig = start_leased(contained(COUNTING), &podman.socket(), 6_000);
    suspend(&mut rig, &podman);
    let exit = rig.receive_exit();
    assert!(
        exit.lease_expired && exit.signal == Some(SIGKILL),
        "{exit:?}"
    );
    assert!(!rig.lives());
    assert!(podman.containers().is_empty());
}

#[test]
fn a_container_that_a_signal_ends_ends_its_task_by_it() {
    let Some(podman) = Podman::start() else {
        return;
    };
    // The shell is not the first process of its namespace then, and may be killed from inside.
    let mut task = contained("sh -c 'kill -TERM $$'; exit $?");
    task.command = ["sh", "-c", "sh -c 'kill -TERM $$'; exit $?"]
        .map(str::to_owned)
        .into();
    let mut rig = start(task, &podman.socket());
    let exit = Exit {
        sender: Some(SignalSender::Other),
        ..ended(None, Some(SIGTERM))
    };
    assert_eq!(rig.receive_exit(), exit);
}

#[test]
fn a_lease_that_runs_out_and_a_grace_that_ends_kill_what_ignores_all() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let ignores_term = "trap '' TERM; echo ready; while true; do sleep 0.1; done";
    let mut rig = start_leased(contained(ignores_term), &podman.socket(), 4_000);
    eventually("ready", || text_of(&rig).contains("ready"));
    let exit = rig.receive_exit();
    assert!(
        exit.lease_expired && exit.signal == Some(SIGKILL),
        "{exit:?}"
    );
    assert!(!rig.lives());
    assert!(podman.containers().is_empty());
    let mut rig = start(contained(ignores_term), &podman.socket());
    eventually("ready", || text_of(&rig).contains("ready"));
    rig.send(&AgentRequest::Stop {
        reason: "preempt".to_owned(),
        grace_ms: 300,
    });
    assert_eq!(rig.receive_exit().signal, Some(SIGKILL));
    assert!(!rig.lives());
    assert!(podman.containers().is_empty());
}

#[test]
fn a_container_of_a_killed_supervisor_is_found_and_ended() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let text = "echo ready; while true; do sleep 0.1; done";
    let mut rig = start(contained(text), &podman.socket());
    eventually("ready", || text_of(&rig).contains("ready"));
    rig.supervisor.kill().unwrap();
    rig.supervisor.wait().unwrap();
    assert_eq!(podman.containers(), ["muster-7-0-11"]);
    let listed = podman.engine().list(WORKER).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].run, rig.directory.run_id());
    assert!(podman.engine().list("another worker").unwrap().is_empty());
    eventually("its end", || {
        end(&rig.directory).unwrap() == ContainerRemains::Nothing
    });
    assert!(!rig.lives());
    assert!(podman.containers().is_empty());
    // Nothing is left to be done.
    assert_eq!(end(&rig.directory).unwrap(), ContainerRemains::Nothing);
}

#[test]
fn a_container_of_the_same_name_that_is_not_ours_is_left_alone() {
    let Some(podman) = Podman::start() else {
        return;
    };
    podman
        .run(&[
            "create",
            "--name",
            "muster-7-0-11",
            "--label",
            "muster.worker=other",
            IMAGE,
            "sh",
        ])
        .unwrap();
    let mut rig = start(contained("true"), &podman.socket());
    let error = rig.receive_exit().start_error.unwrap();
    assert!(error.starts_with("CONTAINER_FAILED: "), "{error}");
    assert_eq!(end(&rig.directory).unwrap(), ContainerRemains::Nothing);
    assert_eq!(podman.containers(), ["muster-7-0-11"]);
}

#[test]
fn an_engine_that_goes_away_takes_no_container_with_it() {
    let Some(mut podman) = Podman::start() else {
        return;
    };
    let text = "echo ready; until [ -e go ]; do sleep 0.1; done; echo again; sleep 2; exit 5";
    let mut rig = start(contained(text), &podman.socket());
    eventually("ready", || text_of(&rig).contains("ready"));
    podman.stop_serving();
    std::thread::park_timeout(Duration::from_millis(300));
    assert!(rig.lives());
    podman.serve().unwrap();
    eventually("found again", || {
        text_of(&rig).contains("engine was unreachable")
    });
    std::fs::write(rig.directory.scratch().join("go"), "").unwrap();
    assert_eq!(rig.receive_exit(), ended(Some(5), None));
    assert!(text_of(&rig).contains("again"));
}

#[test]
fn a_container_is_killed_also_while_its_engine_is_unreachable() {
    let Some(mut podman) = Podman::start() else {
        return;
    };
    let ignores_term = "trap '' TERM; echo ready; while true; do sleep 0.1; done";
    let mut rig = start(contained(ignores_term), &podman.socket());
    eventually("ready", || text_of(&rig).contains("ready"));
    podman.stop_serving();
    rig.send(&AgentRequest::Stop {
        reason: "preempt".to_owned(),
        grace_ms: 0,
    });
    assert_eq!(rig.receive_exit().signal, Some(SIGKILL));
    assert!(!rig.lives());
}

#[test]
fn an_unavailable_image_is_named_with_the_engines_message() {
    let engine = FakeEngine::start(|request, stream| match request {
        request if request.starts_with("GET /images/") => {
            json(stream, 404, r#"{"message": "no such image"}"#);
        }
        request if request.starts_with("POST /images/create") => {
            json(
                stream,
                200,
                "{\"status\": \"trying\"}\n{\"error\": \"denied: log in first\"}\n",
            );
        }
        request => ordinary(request, stream),
    });
    let mut task = contained("true");
    container(&mut task).image = "registry.example.com:5000/team/train".to_owned();
    let error = start(task.clone(), &engine.socket())
        .receive_exit()
        .start_error
        .unwrap();
    for expected in [
        "IMAGE_UNAVAILABLE",
        "registry.example.com:5000/team/train",
        "denied: log in first",
    ] {
        assert!(error.contains(expected), "{error}");
    }
    let pulled =
        "POST /images/create?fromImage=registry.example.com%3A5000%2Fteam%2Ftrain&tag=latest";
    assert!(engine.was_requested(pulled));
    assert!(!engine.was_requested("POST /containers"));
    container(&mut task).pull = PullPolicy::Never;
    let error = start(task, &engine.socket())
        .receive_exit()
        .start_error
        .unwrap();
    assert!(error.contains("not present on the host"), "{error}");
}

#[test]
fn an_engine_receives_the_login_for_the_registry_of_an_image() {
    let engine = FakeEngine::start(|request, stream| match request {
        request if request.starts_with("POST /images/create") => {
            json(stream, 200, "{\"error\": \"denied\"}\n");
        }
        request if request.starts_with("GET /images/") => {
            json(stream, 404, r#"{"message": "no such image"}"#);
        }
        request => ordinary(request, stream),
    });
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("auth.json");
    // user:password
    let text = r#"{"auths": {"r.example.com": {"auth": "dXNlcjpwYXNzd29yZA=="}}}"#;
    std::fs::write(&file, text).unwrap();
    let pull = |image: &str, file: &Path| {
        let mut task = contained("true");
        container(&mut task).image = image.to_owned();
        let mut rig = Rig::start_spec(task, LONG_LEASE_MS, |spec| {
            spec.engine = Some(EngineAccess {
                registry_auth_file: Some(file.to_owned()),
                ..access(&engine.socket())
            });
        });
        let error = rig.receive_exit().start_error.unwrap();
        // Neither in messages nor on disk.
        for entry in std::fs::read_dir(rig.directory.path()).unwrap() {
            let text = std::fs::read(entry.unwrap().path()).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&text).contains("cGFzc3dvcmQ"));
        }
        error
    };
    assert!(pull("r.example.com/team/train:1", &file).contains("denied"));
    let pulled = "POST /images/create?fromImage=r.example.com%2Fteam%2Ftrain%3A1";
    let header = engine.header_of(pulled, "X-Registry-Auth");
    // {"password":"password","username":"user"}, as base64 for addresses.
    let login = "eyJwYXNzd29yZCI6InBhc3N3b3JkIiwidXNlcm5hbWUiOiJ1c2VyIn0=";
    assert_eq!(header.as_deref(), Some(login));
    // Other registries do not get the login.
    assert!(pull("train:1", &file).contains("denied"));
    let pulled = "POST /images/create?fromImage=train%3A1";
    assert_eq!(engine.header_of(pulled, "X-Registry-Auth"), None);
    let missing = home.path().join("none.json");
    let error = pull("r.example.com/team/other:1", &missing);
    let expected = format!(
        "the login at the registry `r.example.com` cannot be read from {}: No such file",
        missing.display()
    );
    assert!(
        error.starts_with("IMAGE_UNAVAILABLE") && error.contains(&expected),
        "{error}"
    );
    assert!(!engine.was_requested("POST /images/create?fromImage=r.example.com%2Fteam%2Fother"));
}

#[test]
fn a_slow_pull_can_be_stopped_and_leaves_nothing() {
    let engine = FakeEngine::start(|request, stream| match request {
        request if request.starts_with("POST /images/create") => {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            drop(stream.write_all(head.as_bytes()));
            // Sends nothing until its client has gone.
            drop(std::io::copy(stream, &mut std::io::sink()));
        }
        request => ordinary(request, stream),
    });
    let mut task = contained("true");
    container(&mut task).pull = PullPolicy::Always;
    let mut rig = start(task, &engine.socket());
    eventually("a pull", || engine.was_requested("POST /images/create"));
    assert!(matches!(rig.receive(), SupervisorMessage::Started { .. }));
    rig.send(&AgentRequest::Stop {
        reason: "cancel".to_owned(),
        grace_ms: 20_000,
    });
    let exit = Exit {
        sender: Some(SignalSender::Supervisor),
        ..ended(None, Some(SIGTERM))
    };
    assert_eq!(rig.receive_exit(), exit);
    assert!(!engine.was_requested("POST /containers"));
}

#[test]
fn a_refusal_of_the_engine_is_reported_with_its_message() {
    let engine = FakeEngine::start(|request, stream| match request {
        request if request.starts_with("POST /containers/create") => {
            json(stream, 500, r#"{"message": "unresolvable CDI devices"}"#);
        }
        request => ordinary(request, stream),
    });
    let error = start(contained("true"), &engine.socket())
        .receive_exit()
        .start_error
        .unwrap();
    let expected = "CONTAINER_FAILED: creating the container: container engine: unresolvable CDI devices (500)";
    assert_eq!(error, expected);
}

#[test]
fn an_exit_code_that_stands_for_a_stop_ends_the_task_like_any_other() {
    let engine = FakeEngine::start(|request, stream| match request {
        request if request.starts_with("POST /containers/create") => {
            json(stream, 201, r#"{"Id": "c1"}"#);
        }
        request if request.starts_with("POST /containers/c1/attach") => {
            drop(stream.write_all(b"HTTP/1.1 101 UPGRADED\r\n\r\n"));
        }
        "POST /containers/c1/start" => json(stream, 204, ""),
        // 128 and SIGSTOP.
        "POST /containers/c1/wait" => json(stream, 200, r#"{"StatusCode": 147}"#),
        request => ordinary(request, stream),
    });
    let mut rig = start(contained("true"), &engine.socket());
    assert_eq!(rig.receive_exit(), ended(Some(147), None));
}

#[test]
fn a_host_without_an_engine_reports_that() {
    let nowhere = Path::new("/nonexistent/engine.sock");
    let error = start(contained("true"), nowhere)
        .receive_exit()
        .start_error
        .unwrap();
    assert!(
        error.contains("no container engine at /nonexistent/engine.sock"),
        "{error}"
    );
    let mut rig = Rig::start(contained("true"), LONG_LEASE_MS);
    let error = rig.receive_exit().start_error.unwrap();
    assert!(error.starts_with("NO_CONTAINER_ENGINE"), "{error}");
}

/// An engine that has accepted a start request, and never answers.
fn stuck() -> FakeEngine {
    FakeEngine::start(|request, stream| match request {
        request if request.starts_with("POST /containers/create") => {
            json(stream, 201, r#"{"Id": "c1"}"#);
        }
        request if request.starts_with("POST /containers/c1/attach") => {
            drop(stream.write_all(b"HTTP/1.1 101 UPGRADED\r\n\r\n"));
            drop(std::io::copy(stream, &mut std::io::sink()));
        }
        request if request.starts_with("POST /containers/c1/start") => {
            drop(std::io::copy(stream, &mut std::io::sink()));
        }
        request if request.starts_with("GET /containers/muster-7-0-11/json") => {
            json(stream, 500, r#"{"message": "busy"}"#);
        }
        request => ordinary(request, stream),
    })
}

#[test]
fn removal_is_retried_ever_less_often() {
    let engine = stuck();
    let mut rig = start(contained("true"), &engine.socket());
    eventually("an order", || {
        engine.was_requested("POST /containers/c1/start")
    });
    rig.send(&AgentRequest::Stop {
        reason: "cancel".to_owned(),
        grace_ms: 0,
    });
    rig.wait_until_checks_are_rare();
    assert!(rig.directory.exit().unwrap().is_none());
    std::fs::remove_file(engine.socket()).unwrap();
    rig.receive_exit();
}

#[test]
fn a_container_that_may_be_starting_is_not_gone_until_the_engine_confirms_it() {
    let engine = stuck();
    let mut rig = start(contained("true"), &engine.socket());
    eventually("an order", || {
        engine.was_requested("POST /containers/c1/start")
    });
    rig.supervisor.kill().unwrap();
    rig.supervisor.wait().unwrap();
    let remains = end(&rig.directory).unwrap();
    assert!(
        matches!(&remains, ContainerRemains::PossiblyAlive(why) if why.contains("busy")),
        "{remains:?}"
    );
    // An absent engine starts nothing. A process that was killed a moment ago may need another round to
    // disappear.
    std::fs::remove_file(engine.socket()).unwrap();
    eventually("nothing", || {
        end(&rig.directory).unwrap() == ContainerRemains::Nothing
    });
}

#[test]
fn a_member_of_a_gang_is_not_prepared_before_its_image_is_there() {
    let (let_go, waits) = std::sync::mpsc::sync_channel::<()>(1);
    let waits = std::sync::Mutex::new(waits);
    let engine = FakeEngine::start(move |request, stream| match request {
        request if request.starts_with("POST /images/create") => {
            let _ = waits.lock().unwrap().recv();
            json(stream, 200, "{\"status\": \"done\"}\n");
        }
        request => ordinary(request, stream),
    });
    let mut task = contained("true");
    container(&mut task).pull = PullPolicy::Always;
    task.barrier = true;
    task.rank.world_size = 2;
    task.rank.rank = 1;
    let mut rig = start(task, &engine.socket());
    eventually("a pull", || engine.was_requested("POST /images/create"));
    rig.send(&AgentRequest::Status);
    assert!(matches!(rig.receive(), SupervisorMessage::Status { .. }));
    let_go.send(()).unwrap();
    assert!(matches!(rig.receive(), SupervisorMessage::Prepared { .. }));
    assert!(!engine.was_requested("POST /containers"));
}

#[test]
fn a_gang_whose_image_is_unavailable_never_begins() {
    let engine = FakeEngine::start(|request, stream| match request {
        request if request.starts_with("POST /images/create") => {
            json(stream, 500, r#"{"message": "the registry is down"}"#);
        }
        request => ordinary(request, stream),
    });
    let mut task = contained("true");
    container(&mut task).pull = PullPolicy::Always;
    task.barrier = true;
    task.rank.world_size = 2;
    let error = start(task, &engine.socket())
        .receive_exit()
        .start_error
        .unwrap();
    assert!(error.contains("the registry is down"), "{error}");
}
