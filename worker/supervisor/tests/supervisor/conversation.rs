//! Messages between tasks and their supervisor on the control socket, and stop requests.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use muster_model::checkpoint_interval::interval_ms;
use muster_model::desired::{CheckpointRef, TaskAssignment};
use muster_model::heartbeat::DamageReport;
use muster_model::spec::StopWarning;
use muster_supervisor::lease::clock::boottime_ms;
use muster_supervisor::{
    AgentRequest, ControlAnswer, ControlNotice, PreemptFlag, SupervisorMessage,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{LONG_LEASE_MS, Rig, eventually, script};

const SIGTERM: i32 = 15;
const SIGUSR1: i32 = 10;
/// Supervisor checks within which it would have acted.
const CHECKS: usize = 20;
/// Number of commits that keeps a disk busy for some time.
const COMMITS: u64 = 60;

/// A task's connection to its control socket.
struct Control(BufReader<UnixStream>);

impl Control {
    fn connect(rig: &Rig) -> Self {
        let stream = UnixStream::connect(rig.directory.control_socket()).unwrap();
        Self(BufReader::new(stream))
    }

    fn send(&mut self, line: &str) {
        self.0.get_mut().write_all(line.as_bytes()).unwrap();
        self.0.get_mut().write_all(b"\n").unwrap();
    }

    fn ask(&mut self, line: &str) -> ControlAnswer {
        self.send(line);
        serde_json::from_str(&self.line()).unwrap()
    }

    fn done(&mut self, line: &str) {
        assert_eq!(self.ask(line), ControlAnswer::done(), "{line}");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    fn notice(&mut self) -> PreemptFlag {
        match serde_json::from_str(&self.line()).unwrap() {
            ControlNotice::Stop(stop) => stop,
            ControlNotice::Gang(gang) => panic!("not asked to stop: {gang:?}"),
        }
    }
}

fn stop(reason: &str, grace_ms: u64) -> AgentRequest {
    AgentRequest::Stop {
        reason: reason.to_owned(),
        grace_ms,
    }
}

/// A task that records the signals it gets, and ends by SIGTERM.
fn listening(extra: &str) -> TaskAssignment {
    script(&format!(
        "trap 'echo usr1 >> got' USR1; trap 'echo term >> got; exit 75' TERM; {extra} echo ready > ready; while :; do \
         sleep 0.02; done"
    ))
}

#[test]
fn the_time_of_a_save_runs_from_its_begin_to_its_commit() {
    let mut rig = Rig::start(script("sleep 1000"), LONG_LEASE_MS);
    rig.receive_started();
    let mut control = Control::connect(&rig);
    let before = boottime_ms();
    control.done(r#"{"op":"begin","step":5,"epoch":11}"#);
    std::thread::park_timeout(std::time::Duration::from_millis(120));
    control.done(r#"{"op":"commit","step":5,"path":"/c/5"}"#);
    let took = boottime_ms() - before;
    let SupervisorMessage::Checkpoint(report) = rig.receive() else {
        panic!("no checkpoint");
    };
    let save_ms = report.save_ms.unwrap();
    assert!((100..=took).contains(&save_ms), "{save_ms} of {took} ms");
    // No `begin` preceded this commit.
    control.done(r#"{"op":"commit","step":6,"path":"/c/6"}"#);
    let SupervisorMessage::Checkpoint(report) = rig.receive() else {
        panic!("no checkpoint");
    };
    assert_eq!((report.step, report.save_ms), (6, None));
}

/// Ten hours between two failures and saves of some 100 ms: Young's time is some 90 s.
#[test]
fn a_first_attempt_is_advised_of_a_checkpoint_interval_when_it_commits() {
    let mut task = script("sleep 1000");
    task.checkpoint_duties.mean_time_ms = Some(36_000_000);
    let mut rig = Rig::start(task, LONG_LEASE_MS);
    rig.receive_started();
    let mut control = Control::connect(&rig);
    // The time of a save is not known yet.
    control.done(r#"{"op":"commit","step":4,"path":"/c/4"}"#);
    control.done(r#"{"op":"begin","step":5}"#);
    std::thread::park_timeout(std::time::Duration::from_millis(100));
    let answer = control.ask(r#"{"op":"commit","step":5,"path":"/c/5"}"#);
    assert!(answer.ok, "{answer:?}");
    let committed = loop {
        if let SupervisorMessage::Checkpoint(report) = rig.receive()
            && report.step == 5
        {
            break report;
        }
    };
    let advice_ms = interval_ms(committed.save_ms.unwrap(), 36_000_000);
    assert_eq!(answer.interval_s, Some(advice_ms.div_ceil(1_000)));
    assert!(advice_ms > 80_000, "{advice_ms}");
}

#[test]
fn an_attempt_without_measurements_gets_the_advice_known_before() {
    let mut task = script("sleep 1000");
    task.checkpoint_duties.mean_time_ms = Some(36_000_000);
    task.checkpoint_duties.interval_ms = Some(90_001);
    let mut rig = Rig::start(task, LONG_LEASE_MS);
    rig.receive_started();
    let mut control = Control::connect(&rig);
    let answer = control.ask(r#"{"op":"commit","step":4,"path":"/c/4"}"#);
    assert_eq!((answer.ok, answer.interval_s), (true, Some(91)));
}

#[test]
fn a_damaged_checkpoint_is_reported_and_its_step_may_be_saved_again() {
    let mut task = script("sleep 1000");
    task.checkpoint = Some(CheckpointRef {
        step: 10,
        path: "/c/step_10".to_owned(),
    });
    let mut rig = Rig::start(task, LONG_LEASE_MS);
    rig.receive_started();
    let mut control = Control::connect(&rig);
    let line = r#"{"op":"commit","step":8,"path":"/c/8"}"#;
    assert!(control.ask(line).error.unwrap().contains("not greater"));
    control.done(r#"{"op":"invalidate","step":10,"reason":"its digest differs","epoch":11}"#);
    let report = DamageReport {
        step: 10,
        reason: "its digest differs".to_owned(),
    };
    assert_eq!(rig.receive(), SupervisorMessage::Damaged(report.clone()));
    assert_eq!(
        rig.directory.damaged().unwrap(),
        std::slice::from_ref(&report)
    );
    // A repeated report has no effect; one of another attempt does not count.
    control.done(r#"{"op":"invalidate","step":10,"reason":"again"}"#);
    let line = r#"{"op":"invalidate","step":9,"reason":"torn","epoch":10}"#;
    assert!(control.ask(line).error.unwrap().contains("epoch"));
    control.done(line_of_commit());
    let SupervisorMessage::Checkpoint(committed) = rig.receive() else {
        panic!("no checkpoint");
    };
    assert_eq!(committed.step, 8);
    let line = r#"{"op":"invalidate","step":8,"reason":"torn"}"#;
    assert!(
        control
            .ask(line)
            .error
            .unwrap()
            .contains("commit a newer one")
    );
    // A new agent is sent it again.
    rig.reconnect();
    rig.receive_started();
    assert!(matches!(rig.receive(), SupervisorMessage::Checkpoint(_)));
    assert_eq!(rig.receive(), SupervisorMessage::Damaged(report));
}

const fn line_of_commit() -> &'static str {
    r#"{"op":"commit","step":8,"path":"/c/8"}"#
}

#[test]
fn progress_is_reported_at_once_and_then_seldom() {
    let mut rig = Rig::start(script("sleep 1000"), LONG_LEASE_MS);
    rig.receive_started();
    let mut control = Control::connect(&rig);
    for step in 1..200 {
        control.done(&format!(r#"{{"op":"progress","step":{step}}}"#));
    }
    assert_eq!(rig.receive(), SupervisorMessage::Progress { step: 1 });
    // Nothing more for a while; a new connection is sent the newest step.
    rig.reconnect();
    rig.receive_started();
    assert_eq!(rig.receive(), SupervisorMessage::Progress { step: 199 });
    rig.send(&stop("cancel", 0));
    rig.receive_exit();
}

#[test]
fn a_watching_connection_is_notified_of_a_stop_and_sigterm_waits_for_a_checkpoint() {
    let mut rig = Rig::start(listening(""), LONG_LEASE_MS);
    rig.receive_started();
    rig.scratch_file("ready");
    let mut control = Control::connect(&rig);
    control.done(r#"{"op":"watch"}"#);
    rig.send(&stop("preempt", 60_000));
    let notice = control.notice();
    assert_eq!(
        (notice.reason.as_str(), notice.grace_ms),
        ("preempt", 60_000)
    );
    // The flag file says the same, and a late subscriber is notified at once.
    let flag = rig.directory.control().join("preempt");
    eventually("the flag", || flag.exists());
    let mut late = Control::connect(&rig);
    late.done(r#"{"op":"watch"}"#);
    assert_eq!(late.notice(), notice);
    // More follow: no signal yet.
    control.done(r#"{"op":"begin","step":1}"#);
    control.done(r#"{"op":"commit","step":1,"path":"/c/1","last":false}"#);
    control.done(r#"{"op":"progress","step":2}"#);
    assert!(!rig.directory.scratch().join("got").exists());
    control.done(r#"{"op":"commit","step":2,"path":"/c/2"}"#);
    assert_eq!(rig.scratch_file("got"), "term");
    let exit = rig.receive_exit();
    assert_eq!((exit.code, exit.lease_expired), (Some(75), false));
}

/// The supervisor checks everything several times, and the task lives.
fn expect_still_running(rig: &mut Rig) {
    for _ in 0..CHECKS {
        rig.send(&AgentRequest::Status);
        let message = rig.receive();
        let stops = matches!(message, SupervisorMessage::Status { stopping: true, .. });
        assert!(stops, "{message:?}");
    }
}

/// Registers a checkpoint by files alone.
fn mark(rig: &Rig, step: u64) {
    let checkpoint = rig.home.path().join(format!("checkpoints/step_{step}"));
    std::fs::create_dir_all(&checkpoint).unwrap();
    std::fs::write(checkpoint.join("_COMMITTED"), "11").unwrap();
}

#[test]
fn a_marker_from_before_the_order_does_not_end_the_wait_for_the_last_checkpoint() {
    let mut rig = Rig::start_spec(script("exec sleep 1000"), LONG_LEASE_MS, |spec| {
        spec.checkpoint_scan_ms = 1_500;
    });
    rig.receive_started();
    let mut control = Control::connect(&rig);
    control.done(r#"{"op":"watch"}"#);
    mark(&rig, 1);
    // Two ticks of the clock that stamps files.
    std::thread::park_timeout(std::time::Duration::from_millis(20));
    rig.send(&stop("preempt", 60_000));
    for step in [1, 2] {
        let SupervisorMessage::Checkpoint(found) = rig.receive() else {
            panic!("it was not waited for");
        };
        assert_eq!(found.step, step);
        if step == 1 {
            expect_still_running(&mut rig);
            mark(&rig, 2);
        }
    }
    assert_eq!(rig.receive_exit().signal, Some(SIGTERM));
}

#[test]
fn commits_that_wait_for_the_disk_when_the_order_comes_do_not_end_the_wait() {
    let mut rig = Rig::start(listening(""), LONG_LEASE_MS);
    rig.receive_started();
    rig.scratch_file("ready");
    let mut control = Control::connect(&rig);
    control.done(r#"{"op":"watch"}"#);
    let lines: String = (1..=COMMITS)
        .map(|step| format!("{{\"op\":\"commit\",\"step\":{step},\"path\":\"/c\"}}\n"))
        .collect();
    control.0.get_mut().write_all(lines.as_bytes()).unwrap();
    rig.send(&stop("preempt", 60_000));
    for step in 1..=COMMITS {
        let message = rig.receive();
        let is_commit = matches!(&message, SupervisorMessage::Checkpoint(it) if it.step == step);
        assert!(is_commit, "{message:?}");
    }
    expect_still_running(&mut rig);
    assert!(!rig.directory.scratch().join("got").exists());
    control.send(r#"{"op":"commit","step":1000,"path":"/c"}"#);
    assert_eq!(rig.receive_exit().code, Some(75));
}

#[test]
fn a_task_that_reported_nothing_left_to_save_is_not_waited_for() {
    let mut rig = Rig::start(listening(""), LONG_LEASE_MS);
    rig.receive_started();
    rig.scratch_file("ready");
    let mut control = Control::connect(&rig);
    control.done(r#"{"op":"watch"}"#);
    control.done(r#"{"op":"commit","step":1,"path":"/c/1","last":true}"#);
    rig.send(&stop("drain", 60_000));
    assert_eq!(rig.receive_exit().code, Some(75));
}

#[test]
fn the_jobs_own_signal_comes_first_and_sigterm_before_the_end() {
    let mut task = listening("");
    task.warning = Some(StopWarning {
        signal: SIGUSR1,
        to_all: false,
        lead_ms: None,
    });
    let mut rig = Rig::start(task, LONG_LEASE_MS);
    rig.receive_started();
    rig.scratch_file("ready");
    let asked = boottime_ms();
    rig.send(&stop("run_time", 2_000));
    assert_eq!(rig.scratch_file("got"), "usr1");
    assert_eq!(rig.receive_exit().code, Some(75));
    let took = boottime_ms() - asked;
    assert!(took >= 1_500, "{took} ms");
    assert_eq!(rig.scratch_file("got"), "usr1\nterm");
}

#[test]
fn the_jobs_own_signal_reaches_every_process_if_it_is_for_all() {
    // The child has left the main process's group.
    let child = "setsid sh -c 'trap \"echo child >> got; exit 0\" USR1; echo up > child; while :; do sleep 0.02; \
                 done' & while [ ! -s child ]; do sleep 0.02; done;";
    let mut task = listening(child);
    task.warning = Some(StopWarning {
        signal: SIGUSR1,
        to_all: true,
        lead_ms: Some(60_000),
    });
    let mut rig = Rig::start(task, LONG_LEASE_MS);
    rig.receive_started();
    rig.scratch_file("ready");
    rig.send(&stop("cancel", 60_000));
    let got = rig.directory.scratch().join("got");
    eventually("both signals", || {
        let text = std::fs::read_to_string(&got).unwrap_or_default();
        text.contains("usr1\n") && text.contains("child\n")
    });
    rig.send(&stop("cancel", 0));
    rig.receive_exit();
}

#[test]
fn a_task_is_asked_before_its_lease_ends_and_that_counts_as_the_leases_end() {
    let began = boottime_ms();
    let mut rig = Rig::start_spec(
        script(
            "trap 'cat $MUSTER_CTL_DIR/preempt > flag; echo >> flag; exit 75' TERM; while :; do sleep 0.02; done",
        ),
        3_000,
        |spec| spec.lease_warning_ms = 2_000,
    );
    rig.receive_started();
    let exit = rig.receive_exit();
    let took = boottime_ms() - began;
    assert_eq!(
        (exit.code, exit.lease_expired),
        (Some(75), true),
        "{exit:?}"
    );
    assert!((1_000..3_000).contains(&took), "{took} ms");
    assert!(rig.scratch_file("flag").contains(r#""reason":"lease""#));
}

#[test]
fn a_lease_that_is_extended_in_time_stops_no_task() {
    let mut rig = Rig::start_spec(
        script("trap 'exit 75' TERM; sleep 2 & wait; exit 0"),
        2_000,
        |spec| spec.lease_warning_ms = 1_000,
    );
    rig.receive_started();
    rig.send(&AgentRequest::Extend {
        deadline_boottime_ms: boottime_ms() + LONG_LEASE_MS,
    });
    let exit = rig.receive_exit();
    assert_eq!((exit.code, exit.lease_expired), (Some(0), false));
}

/// Sends malformed lines endlessly, and reads the answers.
fn flood_with_lines(mut stream: UnixStream) {
    let mut answers = stream.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        drop(std::io::copy(&mut answers, &mut std::io::sink()));
    });
    while stream.write_all(&[b'\n'; 64 << 10]).is_ok() {}
    reader.join().unwrap();
}

#[test]
fn a_task_that_floods_its_control_socket_can_be_stopped() {
    let mut rig = Rig::start(script("sleep 1000"), LONG_LEASE_MS);
    rig.receive_started();
    let socket = rig.directory.control_socket();
    let flood = |act: fn(UnixStream)| {
        let socket = socket.clone();
        // It ends with the supervisor, which closes the socket.
        std::thread::spawn(move || {
            while let Ok(stream) = UnixStream::connect(&socket) {
                act(stream);
            }
        })
    };
    let floods = [
        flood(drop),
        flood(drop),
        flood(flood_with_lines),
        flood(flood_with_lines),
    ];
    let asked = boottime_ms();
    rig.send(&stop("cancel", 0));
    rig.receive_exit();
    let took = boottime_ms() - asked;
    assert!(took < 15_000, "{took} ms");
    for flood in floods {
        flood.join().unwrap();
    }
}

#[test]
fn the_last_requests_of_a_task_are_processed_however_many_they_are() {
    let mut rig = Rig::start(script("exec sleep 1000"), LONG_LEASE_MS);
    let main = rig.receive_started();
    let mut control = Control::connect(&rig);
    control.done(r#"{"op":"progress","step":1}"#);
    // The checkpoint directory is scanned again only when the task has ended.
    let supervisor = Pid::from_child(&rig.supervisor);
    kill_process(supervisor, Signal::STOP).unwrap();
    let lines = "{\"op\":\"progress\",\"step\":2}\n".repeat(1_000);
    control.0.get_mut().write_all(lines.as_bytes()).unwrap();
    control.send(line_of_commit());
    main.kill();
    kill_process(supervisor, Signal::CONT).unwrap();
    let mut committed = None;
    loop {
        match rig.receive() {
            SupervisorMessage::Checkpoint(report) => committed = Some(report.step),
            SupervisorMessage::Exited(_) => break,
            _ => {}
        }
    }
    assert_eq!(committed, Some(8));
}

#[test]
fn a_failure_has_its_decisive_line_and_the_time_of_it() {
    let text = r#"echo '{"message": {"message": "x", "extraInfo": {"timestamp": "1700000000"}}}' \
        > $TORCHELASTIC_ERROR_FILE
        echo step 1; echo "RuntimeError: CUDA out of memory. Tried" >&2; echo after >&2; exit 1"#;
    let mut rig = Rig::start(script(text), LONG_LEASE_MS);
    let exit = rig.receive_exit();
    assert_eq!(exit.code, Some(1));
    assert_eq!(
        exit.evidence,
        "RuntimeError: CUDA out of memory. Tried\nraised at 1700000000"
    );
    // A task that succeeds has no evidence, and neither has one that ends on request.
    let mut rig = Rig::start(script("echo KeyError; exit 0"), LONG_LEASE_MS);
    assert_eq!(rig.receive_exit().evidence, "");
}

#[test]
fn the_end_of_a_long_output_is_looked_through() {
    let text =
        "head -c 1000000 /dev/zero | tr '\\0' x; echo; echo 'ValueError: at the end'; exit 3";
    let mut rig = Rig::start(script(text), LONG_LEASE_MS);
    assert_eq!(rig.receive_exit().evidence, "ValueError: at the end");
}

#[test]
fn a_task_without_a_watching_connection_receives_sigterm_at_once() {
    let mut rig = Rig::start(script("sleep 1000"), LONG_LEASE_MS);
    rig.receive_started();
    let asked = boottime_ms();
    rig.send(&stop("preempt", 60_000));
    assert_eq!(rig.receive_exit().signal, Some(SIGTERM));
    assert!(boottime_ms() - asked < 15_000);
}
