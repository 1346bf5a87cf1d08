//! Real supervisors with real, badly behaved tasks.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use muster_model::command::{Exit, SignalSender};
use muster_model::desired::CheckpointRef;
use muster_model::ids::GpuUuid;
use muster_model::limits::CHECKPOINTS_REPORTED_MAX;
use muster_supervisor::lease::clock::boottime_ms;
use muster_supervisor::{AgentRequest, ControlAnswer, LogLimits, PreemptFlag, SupervisorMessage};

use crate::forked::Server;
use crate::support::{FILES_MAX, LONG_LEASE_MS, Rig, eventually, is_gone, read_segments, script};

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

fn ended(code: Option<i32>, signal: Option<i32>) -> Exit {
    Exit {
        code,
        signal,
        out_of_memory: false,
        lease_expired: false,
        start_error: None,
        // None of these tests sends a signal itself.
        sender: signal.map(|_| SignalSender::Supervisor),
        ..Exit::default()
    }
}

pub(crate) fn stop(grace_ms: u64) -> AgentRequest {
    AgentRequest::Stop {
        reason: "preempt".to_owned(),
        grace_ms,
    }
}

#[test]
fn a_task_runs_and_its_end_and_output_are_kept() {
    let mut rig = Rig::start(script("echo out; echo err >&2; exit 3"), LONG_LEASE_MS);
    assert_eq!(rig.receive_exit(), ended(Some(3), None));
    let output = String::from_utf8(rig.output()).unwrap();
    assert!(
        output.contains("out\n") && output.contains("err\n"),
        "{output}"
    );
}

#[test]
fn a_supervisor_is_small() {
    let text = "echo out; echo err >&2; mkdir $MUSTER_CKPT_DIR/step_1; echo > $MUSTER_CKPT_DIR/step_1/_COMMITTED; \
                sleep 1000";
    // Forked, as all supervisors of a worker are.
    let server = Server::start();
    let mut forked = server.fork("7-0-11", script(text), LONG_LEASE_MS);
    forked.started();
    // It has copied output, scanned the folder and recorded a commit: all its threads run.
    assert!(matches!(forked.receive(), SupervisorMessage::Checkpoint(_)));
    let logs = server.home.path().join("logs");
    eventually("output", || !read_segments(&logs).is_empty());
    let file = format!("/proc/{}/status", forked.supervisor);
    let status = std::fs::read_to_string(file).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident_kib: u64 = resident
        .and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap();
    assert!(resident_kib < 3_072, "{resident_kib} KiB resident");
}

#[test]
fn a_quick_task_leaves_no_checkpoint_folder_and_a_saved_checkpoint_stays() {
    let mut rig = Rig::start(script("true"), LONG_LEASE_MS);
    assert_eq!(rig.receive_exit(), ended(Some(0), None));
    assert!(!rig.home.path().join("checkpoints").exists());
    let text = "mkdir $MUSTER_CKPT_DIR/step_1; echo > $MUSTER_CKPT_DIR/step_1/_COMMITTED";
    let mut rig = Rig::start(script(text), LONG_LEASE_MS);
    // On a busy machine it may outlive a quick task.
    let mut message = rig.receive();
    if matches!(message, SupervisorMessage::Started { .. }) {
        message = rig.receive();
    }
    assert!(matches!(message, SupervisorMessage::Checkpoint(report) if report.step == 1));
    assert_eq!(rig.receive_exit(), ended(Some(0), None));
    assert!(
        rig.home
            .path()
            .join("checkpoints/step_1/_COMMITTED")
            .exists()
    );
}

#[test]
fn a_task_ignores_no_signal_because_its_agent_does() {
    let mut rig = Rig::start(script("grep SigIgn /proc/self/status"), LONG_LEASE_MS);
    assert_eq!(rig.receive_exit(), ended(Some(0), None));
    assert_eq!(rig.output(), b"SigIgn:\t0000000000000000\n");
}

#[test]
fn the_environment_is_the_contract() {
    let mut task = script("env");
    task.environment = [("MINE", "1"), ("MUSTER_EPOCH", "forged")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    task.gpus = vec![GpuUuid(1), GpuUuid(2)];
    task.rank.master_address = "10.0.0.1".to_owned();
    task.rank.master_port = 29_500;
    task.checkpoint = Some(CheckpointRef {
        step: 40,
        path: "/c/step_40".to_owned(),
    });
    task.checkpoint_duties.interval_ms = Some(61_500);
    let mut rig = Rig::start(task, LONG_LEASE_MS);
    rig.receive_exit();
    let output = String::from_utf8(rig.output()).unwrap();
    let control = rig.directory.control().display().to_string();
    let checkpoints = rig.home.path().join("checkpoints").display().to_string();
    for line in [
        "MINE=1",
        "MUSTER_JOB_ID=7",
        "MUSTER_TASK_INDEX=0",
        "MUSTER_ATTEMPT=2",
        "MUSTER_EPOCH=11",
        "MUSTER_RESTART_REASON=infra",
        "MUSTER_CKPT_LATEST=/c/step_40",
        "MUSTER_CKPT_STEP=40",
        "MUSTER_CKPT_INTERVAL_ADVICE=62",
        "MUSTER_GRACE_SECONDS=30",
        "RANK=0",
        "WORLD_SIZE=1",
        "LOCAL_RANK=0",
        "NODE_RANK=0",
        "MASTER_ADDR=10.0.0.1",
        "MASTER_PORT=29500",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=25",
        &format!("MUSTER_CTL_DIR={control}"),
        &format!("MUSTER_CTL_SOCK={control}/ctl.sock"),
        &format!("MUSTER_CKPT_DIR={checkpoints}"),
        &format!("TORCHELASTIC_ERROR_FILE={control}/error.json"),
        &format!("CUDA_VISIBLE_DEVICES={},{}", GpuUuid(1), GpuUuid(2)),
        &format!("NVIDIA_VISIBLE_DEVICES={},{}", GpuUuid(1), GpuUuid(2)),
    ] {
        assert!(
            output.lines().any(|found| found == line),
            "{line} is not in\n{output}"
        );
    }
}

#[test]
fn a_failed_start_is_reported_with_the_reason() {
    let mut task = script("");
    task.command = vec!["/nonexistent/program".to_owned()];
    let exit = Rig::start(task, LONG_LEASE_MS).receive_exit();
    assert!(exit.is_missing_file(), "{exit:?}");
    assert!(exit.start_error.unwrap().contains("/nonexistent/program"));
    let mut task = script("true");
    task.working_directory = Some("/nonexistent/folder".to_owned());
    let exit = Rig::start(task, LONG_LEASE_MS).receive_exit();
    assert!(exit.is_missing_file(), "{exit:?}");
    assert!(exit.start_error.unwrap().contains("/nonexistent/folder"));
}

#[test]
fn a_task_whose_lease_runs_out_is_killed() {
    let began = boottime_ms();
    let mut rig = Rig::start(script("sleep 1000"), 400);
    let task = rig.receive_started();
    let exit = rig.receive_exit();
    assert!(
        exit.lease_expired && exit.signal == Some(SIGKILL),
        "{exit:?}"
    );
    assert!(!task.is_alive());
    assert!(boottime_ms() - began >= 400);
}

#[test]
fn a_lease_is_extended() {
    let mut rig = Rig::start(script("sleep 1"), 500);
    rig.receive_started();
    rig.send(&AgentRequest::Extend {
        deadline_boottime_ms: boottime_ms() + LONG_LEASE_MS,
    });
    assert_eq!(rig.receive_exit(), ended(Some(0), None));
}

#[test]
fn a_lease_that_is_over_starts_nothing() {
    let mut rig = Rig::start(script("true"), 0);
    let exit = rig.receive_exit();
    assert!(exit.lease_expired && exit.start_error.is_some(), "{exit:?}");
}

#[test]
fn a_task_receives_sigterm_first_and_may_clean_up() {
    let text = "trap 'cat $MUSTER_CTL_DIR/preempt > flag; echo >> flag; exit 75' TERM; echo ready > ready; while :; \
                do sleep 0.05; done";
    let mut rig = Rig::start(script(text), LONG_LEASE_MS);
    rig.receive_started();
    rig.scratch_file("ready");
    rig.send(&stop(20_000));
    assert_eq!(rig.receive_exit(), ended(Some(75), None));
    let flag: PreemptFlag = serde_json::from_str(&rig.scratch_file("flag")).unwrap();
    assert_eq!((flag.reason.as_str(), flag.grace_ms), ("preempt", 20_000));
}

#[test]
fn a_shells_child_gets_its_grace_although_the_shell_ends_at_once() {
    let text = "sh -c 'trap \"sleep 0.3; echo saved > saved; exit 0\" TERM; echo ready > ready; while :; do sleep \
                0.05; done' & wait";
    let mut rig = Rig::start(script(text), LONG_LEASE_MS);
    rig.receive_started();
    rig.scratch_file("ready");
    rig.send(&stop(20_000));
    assert_eq!(rig.receive_exit(), ended(None, Some(SIGTERM)));
    assert_eq!(rig.scratch_file("saved"), "saved");
}

#[test]
fn a_task_that_ignores_sigterm_is_killed_when_its_grace_is_over() {
    let text = "trap '' TERM; echo ready > ready; while :; do sleep 0.05; done";
    let mut rig = Rig::start(script(text), LONG_LEASE_MS);
    rig.receive_started();
    rig.scratch_file("ready");
    let asked = boottime_ms();
    rig.send(&stop(300));
    assert_eq!(rig.receive_exit(), ended(None, Some(SIGKILL)));
    let took = boottime_ms() - asked;
    assert!((300..2_300).contains(&took), "{took} ms");
}

#[test]
fn a_stopped_task_is_killed_without_grace() {
    let mut rig = Rig::start(script("kill -STOP $$"), LONG_LEASE_MS);
    rig.receive_started();
    rig.send(&stop(0));
    assert_eq!(rig.receive_exit(), ended(None, Some(SIGKILL)));
}

/// Forks twice into sessions of their own, as daemons do, and prints the remaining process.
pub(crate) const RUNAWAY: &str = "setsid sh -c 'setsid sh -c \"echo \\$\\$ > runaway; exec sleep 1000\" >/dev/null \
                                  2>&1 & exit 0'; ";

#[test]
fn a_process_that_forks_away_does_not_outlive_the_task() {
    let text = format!("{RUNAWAY} while [ ! -s runaway ]; do sleep 0.01; done; exit 5");
    let mut rig = Rig::start(script(&text), LONG_LEASE_MS);
    let runaway = rig.scratch_file("runaway");
    assert_eq!(rig.receive_exit(), ended(Some(5), None));
    assert!(is_gone(&runaway));
}

#[test]
fn a_process_that_forks_away_is_killed_with_the_lease() {
    let mut rig = Rig::start(script(&format!("{RUNAWAY} sleep 1000")), 700);
    rig.receive_started();
    let runaway = rig.scratch_file("runaway");
    assert!(rig.receive_exit().lease_expired);
    assert!(is_gone(&runaway));
}

#[test]
fn a_slow_end_is_polled_ever_less_often() {
    let text =
        "sh -c 'trap \"\" TERM; echo up > up; while :; do sleep 0.1; done' & echo $$ > main; wait";
    let mut rig = Rig::start(script(text), LONG_LEASE_MS);
    let main = rig.scratch_file("main");
    rig.scratch_file("up");
    let stop = |grace_ms| AgentRequest::Stop {
        reason: "preempt".to_owned(),
        grace_ms,
    };
    rig.send(&stop(60_000));
    eventually("the main process has ended", || is_gone(&main));
    rig.wait_until_checks_are_rare();
    assert!(rig.lives(), "the rest has its grace");
    rig.send(&stop(0));
    rig.receive_exit();
}

#[test]
fn a_task_dies_with_its_supervisor() {
    let mut rig = Rig::start(script("exec sleep 1000"), LONG_LEASE_MS);
    let task = rig.receive_started();
    rig.supervisor.kill().unwrap();
    eventually("the task's death", || !task.is_alive());
}

#[test]
fn a_task_that_prints_without_end_holds_a_bounded_part_of_the_disk() {
    let limits = LogLimits {
        segment_bytes: 64 << 10,
        segments_max: 4,
        unshipped_segments_max: None,
    };
    let text = "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo the end";
    let mut rig = Rig::start_with(script(text), LONG_LEASE_MS, limits);
    rig.receive_exit();
    let output = rig.output();
    assert!(output.len() <= 4 * (64 << 10), "{} bytes", output.len());
    assert!(output.ends_with(b"\nthe end\n"));
}

#[test]
fn a_restarted_agent_receives_all_reports_again() {
    let mut rig = Rig::start(script("sleep 1000"), LONG_LEASE_MS);
    let task = rig.receive_started();
    rig.reconnect();
    assert_eq!(rig.receive_started(), task);
    rig.send(&AgentRequest::Status);
    assert!(matches!(
        rig.receive(),
        SupervisorMessage::Status {
            stopping: false,
            ..
        }
    ));
    rig.send(&stop(0));
    assert_eq!(rig.receive_exit(), ended(None, Some(SIGKILL)));
}

#[test]
fn an_attempt_is_never_started_twice() {
    let mut rig = Rig::start(script("sleep 1000"), LONG_LEASE_MS);
    let task = rig.receive_started();
    let second = std::process::Command::new(crate::support::PROGRAM)
        .arg("supervise")
        .arg(rig.directory.path())
        .output()
        .unwrap();
    assert!(!second.status.success());
    assert!(task.is_alive());
}

fn ask(control: &mut BufReader<UnixStream>, line: &str) -> ControlAnswer {
    control.get_mut().write_all(line.as_bytes()).unwrap();
    control.get_mut().write_all(b"\n").unwrap();
    let mut answer = String::new();
    control.read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap()
}

#[test]
fn commits_on_the_control_socket_are_checked_recorded_and_passed_on() {
    let mut task = script("sleep 1000");
    task.checkpoint = Some(CheckpointRef {
        step: 10,
        path: "/c/step_10".to_owned(),
    });
    let mut rig = Rig::start(task, LONG_LEASE_MS);
    rig.receive_started();
    let stream = UnixStream::connect(rig.directory.control_socket()).unwrap();
    let mut control = BufReader::new(stream);
    assert!(ask(&mut control, r#"{"op":"begin","step":11}"#).ok);
    assert!(ask(&mut control, r#"{"op":"progress","step":11}"#).ok);
    assert_eq!(rig.receive(), SupervisorMessage::Progress { step: 11 });
    for (line, reason) in [
        (
            r#"{"op":"commit","step":10,"path":"/c/step_10"}"#,
            "not greater",
        ),
        (
            r#"{"op":"commit","step":11,"path":"step_11"}"#,
            "not absolute",
        ),
        (
            r#"{"op":"commit","step":11,"path":"/c/11","epoch":10}"#,
            "epoch",
        ),
        ("nonsense", "not a request"),
    ] {
        let answer = ask(&mut control, line);
        assert!(
            !answer.ok && answer.error.unwrap().contains(reason),
            "{line}"
        );
    }
    let line = r#"{"op":"commit","step":11,"path":"/c/step_11","size_bytes":5,"epoch":11}"#;
    assert_eq!(ask(&mut control, line), ControlAnswer::done());
    let [recorded] = rig.directory.checkpoints().unwrap().try_into().unwrap();
    assert_eq!((recorded.step, recorded.size_bytes), (11, 5));
    assert_eq!(rig.receive(), SupervisorMessage::Checkpoint(recorded));
}

#[test]
fn commits_that_no_agent_received_are_sent_to_the_next_one_and_stored() {
    let mut rig = Rig::start(script("sleep 1000"), LONG_LEASE_MS);
    rig.receive_started();
    let stream = UnixStream::connect(rig.directory.control_socket()).unwrap();
    let mut control = BufReader::new(stream);
    let steps = 1..=CHECKPOINTS_REPORTED_MAX as u64 + 3;
    for step in steps.clone() {
        let line = format!(r#"{{"op":"commit","step":{step},"path":"/c/step_{step}"}}"#);
        assert_eq!(ask(&mut control, &line), ControlAnswer::done());
    }
    let newest: Vec<u64> = steps.skip(3).collect();
    rig.reconnect();
    rig.receive_started();
    let reported = newest.iter().map(|_| match rig.receive() {
        SupervisorMessage::Checkpoint(report) => report.step,
        other => panic!("no checkpoint: {other:?}"),
    });
    assert_eq!(reported.collect::<Vec<_>>(), newest);
    // The file of earlier checkpoints holds as many as are reported, the newest one is in a separate file.
    let recorded = rig.directory.checkpoints().unwrap();
    let recorded: Vec<u64> = recorded.iter().map(|report| report.step).collect();
    assert!(recorded.ends_with(&newest), "{recorded:?}");
    // As an earlier supervisor leaves it.
    std::fs::remove_file(rig.directory.kept().join("checkpoints.json")).unwrap();
    let recorded = rig.directory.checkpoints().unwrap();
    assert_eq!(recorded.len(), 1);
    assert_eq!(
        recorded.last().map(|report| report.step),
        newest.last().copied()
    );
}

#[test]
fn checkpoints_by_files_alone_are_found_unless_they_are_anothers() {
    let text = "cd $MUSTER_CKPT_DIR; for step in 1 2; do mkdir step_$step.tmp; echo w > step_$step.tmp/w; mv \
                step_$step.tmp step_$step; done; echo > step_1/_COMMITTED; echo 10 > step_2/_COMMITTED; while [ ! -e \
                next ]; do sleep 0.02; done; mkdir step_3; echo $MUSTER_EPOCH > step_3/_COMMITTED";
    let mut rig = Rig::start(script(text), LONG_LEASE_MS);
    rig.receive_started();
    let SupervisorMessage::Checkpoint(first) = rig.receive() else {
        panic!("no checkpoint");
    };
    let checkpoints = rig.home.path().join("checkpoints");
    assert_eq!(first.step, 1);
    assert_eq!(first.path, checkpoints.join("step_1").display().to_string());
    std::fs::write(checkpoints.join("next"), "").unwrap();
    // Written right before the end: the last scan finds it.
    let SupervisorMessage::Checkpoint(last) = rig.receive() else {
        panic!("no checkpoint");
    };
    assert_eq!(last.step, 3);
    rig.receive_exit();
}

#[test]
fn pipes_and_devices_in_the_place_of_files_hold_up_neither_checkpoints_nor_the_end() {
    let text = "cd $MUSTER_CKPT_DIR; mkdir step_1 step_2 step_3; mkfifo step_3/_COMMITTED; ln -s /dev/zero \
                step_2/_COMMITTED
        echo 11 > step_1/_COMMITTED; until [ -e next ]; do sleep 0.02; done; mkfifo $TORCHELASTIC_ERROR_FILE; exit 3";
    let mut rig = Rig::start(script(text), LONG_LEASE_MS);
    rig.receive_started();
    let SupervisorMessage::Checkpoint(found) = rig.receive() else {
        panic!("no checkpoint");
    };
    assert_eq!(found.step, 1);
    std::fs::write(rig.home.path().join("checkpoints/next"), "").unwrap();
    assert_eq!(rig.receive_exit().code, Some(3));
}

/// The marker contains the digest; the directory's creation time, which a rename keeps, gives the save time.
#[test]
fn checkpoints_by_files_alone_have_a_digest_and_the_time_of_their_save() {
    let text = "cd $MUSTER_CKPT_DIR
        save() { mkdir step_$1.tmp; sleep 0.3; mv step_$1.tmp step_$1; \
        printf '%s\\n' \"$2\" $MUSTER_EPOCH > step_$1/m; mv step_$1/m step_$1/_COMMITTED; }
        save 8 sha256:00ff; until [ -e next ]; do sleep 0.02; done; save 9 sha256:xyz; exec sleep 1000";
    let before = muster_supervisor::lease::clock::boottime_ms();
    let mut rig = Rig::start(script(text), LONG_LEASE_MS);
    rig.receive_started();
    let checkpoints = rig.home.path().join("checkpoints");
    let mut reports = Vec::new();
    for step in [8, 9] {
        let SupervisorMessage::Checkpoint(report) = rig.receive() else {
            panic!("no checkpoint");
        };
        assert_eq!(report.step, step);
        std::fs::write(checkpoints.join("next"), "").unwrap();
        reports.push(report);
    }
    let digests: Vec<&str> = reports.iter().map(|report| &*report.digest).collect();
    assert_eq!(digests, ["sha256:00ff", ""]);
    // Not every file system records it.
    let has_birth_times = std::fs::metadata(&checkpoints).unwrap().created().is_ok();
    let took = muster_supervisor::lease::clock::boottime_ms() - before;
    for save_ms in reports.iter().map(|report| report.save_ms) {
        assert_eq!(save_ms.is_some(), has_birth_times);
        assert!(
            save_ms.is_none_or(|it| (290..=took).contains(&it)),
            "{save_ms:?}"
        );
    }
}

#[test]
fn a_disk_that_refuses_the_output_does_not_stop_the_task() {
    let mut rig = Rig::start_spec(
        script("head -c 1000000 /dev/zero; echo > survived; exit 6"),
        LONG_LEASE_MS,
        // A path below a file: every write fails, as on a full disk.
        |spec| spec.log_directory = "/proc/version/logs".into(),
    );
    assert_eq!(rig.receive_exit(), ended(Some(6), None));
    let survived = std::fs::read_to_string(rig.directory.scratch().join("survived")).unwrap();
    assert_eq!(survived, "\n");
}

#[test]
fn a_task_inherits_no_files() {
    let mut rig = Rig::start(script("exec ls -l /proc/self/fd"), LONG_LEASE_MS);
    rig.receive_exit();
    let output = String::from_utf8(rig.output()).unwrap();
    assert!(
        output.contains("/dev/null") && !output.contains("/dev/zero"),
        "{output}"
    );
}

/// A process that writes to this path blocks forever, as on a disk that hangs.
fn hang(path: &std::path::Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

#[test]
fn a_disk_that_hangs_delays_neither_the_signal_nor_the_lease() {
    let text = "trap 'echo asked > asked' TERM; echo ready > ready; while :; do sleep 0.05; done";
    let mut rig = Rig::start(script(text), 4_000);
    let task = rig.receive_started();
    rig.scratch_file("ready");
    hang(&rig.directory.control().join("preempt.new"));
    rig.send(&stop(60_000));
    assert_eq!(rig.scratch_file("asked"), "asked");
    let exit = rig.receive_exit();
    assert!(exit.lease_expired, "{exit:?}");
    assert!(!task.is_alive());
}

#[test]
fn a_disk_that_hangs_at_the_start_does_not_delay_the_end_of_the_lease() {
    let lease_ms = 1_500;
    let mut rig = Rig::start_prepared(script("sleep 1000"), lease_ms, FILES_MAX, |_, directory| {
        hang(&directory.path().join("process.json.new"));
    });
    let exit = rig.receive_exit();
    assert!(exit.lease_expired, "{exit:?}");
    assert!(!rig.lives());
}

#[test]
fn a_task_that_cannot_be_recorded_runs_and_is_recorded_once_the_disk_takes_it() {
    let task = script("sleep 1000");
    let mut rig = Rig::start_prepared(task, LONG_LEASE_MS, FILES_MAX, |_, directory| {
        // Acts like a full disk: the temporary file cannot be created.
        std::fs::create_dir(directory.path().join("process.json.new")).unwrap();
    });
    let SupervisorMessage::Started { pid } = rig.receive() else {
        panic!("the task does not run");
    };
    assert_eq!(rig.directory.process().unwrap(), None);
    std::fs::remove_dir(rig.directory.path().join("process.json.new")).unwrap();
    let recorded = || rig.directory.process().unwrap().map(|process| process.pid);
    eventually("the process is on record", || recorded() == Some(pid));
    assert!(rig.lives());
}

#[test]
fn an_end_that_cannot_be_recorded_is_still_reported_to_the_agent() {
    let task = script("exit 7");
    let mut rig = Rig::start_prepared(task, LONG_LEASE_MS, FILES_MAX, |_, directory| {
        std::fs::create_dir(directory.path().join("exit.json.new")).unwrap();
    });
    let SupervisorMessage::Exited(exit) = rig.receive() else {
        panic!("the end is not reported");
    };
    assert_eq!(exit, ended(Some(7), None));
    assert!(rig.supervisor.wait().unwrap().success());
}

#[test]
fn no_process_is_left_when_a_failed_start_is_recorded() {
    let mut errors = Vec::new();
    for files_max in 10..64 {
        let task = script("sleep 1000");
        let mut rig = Rig::start_prepared(task, LONG_LEASE_MS, files_max, |_, _| {});
        match rig.try_receive() {
            Some(SupervisorMessage::Exited(exit)) => {
                assert!(!rig.lives(), "{files_max} files: {exit:?}");
                errors.push(exit.start_error.unwrap());
            }
            Some(SupervisorMessage::Started { .. }) => break,
            Some(other) => panic!("{files_max} files: {other:?}"),
            // So few that the supervisor could not even report it; it has started nothing then.
            None => assert!(!rig.lives(), "{files_max} files"),
        }
    }
    assert!(!errors.is_empty());
}
