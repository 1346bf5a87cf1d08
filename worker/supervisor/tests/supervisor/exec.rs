//! Commands that users run beside a task.

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use crate::support::{LONG_LEASE_MS, Rig, TIMEOUT_MS, eventually, is_gone, script};
use muster_supervisor::AgentRequest;
use muster_supervisor::exec::{self, ExecAnswer, ExecRequest};
use muster_supervisor::limits::{EXEC_REQUEST_BYTES_MAX, EXEC_SESSIONS_MAX};
use muster_supervisor::process::ProcessEntry;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Consecutive failing starts: about one in 300 coincides with the reaping of processes.
const FAILED_STARTS: usize = 1_500;
/// Reapings requested during each start.
const LOOKS_PER_START: usize = 20;

/// A command beside the task, with the test as its user.
struct Beside {
    socket: OwnedFd,
    input: Option<File>,
    output: File,
}

impl Beside {
    fn start(rig: &mut Rig, text: &str) -> Self {
        Self::start_command(rig, ["sh", "-c", text].map(str::to_owned).to_vec())
    }

    fn start_command(rig: &mut Rig, command: Vec<String>) -> Self {
        let request = ExecRequest {
            command,
            terminal: None,
        };
        let (their_input, input) = io::pipe().unwrap();
        let (output, their_output) = io::pipe().unwrap();
        let files = [
            their_input.as_fd(),
            their_output.as_fd(),
            their_output.as_fd(),
        ];
        Self {
            socket: ask(rig, &request, files),
            input: Some(File::from(OwnedFd::from(input))),
            output: File::from(OwnedFd::from(output)),
        }
    }

    fn started(rig: &mut Rig, text: &str) -> Self {
        let beside = Self::start(rig, text);
        assert_eq!(beside.receive(), Some(ExecAnswer::Started));
        beside
    }

    fn receive(&self) -> Option<ExecAnswer> {
        receive_answer(&self.socket)
    }

    /// The complete output.
    fn output(&mut self) -> String {
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        text
    }
}

/// Requests a command, once the supervisor accepts any.
pub(crate) fn ask(rig: &mut Rig, request: &ExecRequest, files: [BorrowedFd<'_>; 3]) -> OwnedFd {
    rig.send(&AgentRequest::OpenExec);
    let mut socket = None;
    eventually("the socket for commands", || {
        socket = exec::ask(&rig.directory, request, files).ok();
        socket.is_some()
    });
    socket.unwrap()
}

/// The next answer; `None` if the supervisor hung up.
pub(crate) fn receive_answer(socket: &OwnedFd) -> Option<ExecAnswer> {
    let mut polled = [PollFd::new(socket, PollFlags::IN)];
    let limit = Timespec {
        tv_sec: i64::try_from(TIMEOUT_MS / 1_000).unwrap(),
        tv_nsec: 0,
    };
    assert_eq!(poll(&mut polled, Some(&limit)).unwrap(), 1, "no answer");
    exec::receive(socket.as_fd()).unwrap()
}

pub(crate) const fn ended(code: Option<i32>, signal: Option<i32>) -> Option<ExecAnswer> {
    Some(ExecAnswer::Ended { code, signal })
}

#[test]
fn a_command_sees_what_its_task_sees_and_its_end_is_reported() {
    let mut task = script("echo mine > file; sleep 1000");
    task.environment
        .insert("COLOUR".to_owned(), "green".to_owned());
    let mut rig = Rig::start(task, LONG_LEASE_MS);
    rig.scratch_file("file");
    let text = "cat; cat file; echo $COLOUR $MUSTER_JOB_ID $MUSTER_EPOCH; exit 7";
    let mut beside = Beside::started(&mut rig, text);
    let mut input = beside.input.take().unwrap();
    input.write_all(b"typed\n").unwrap();
    drop(input);
    assert_eq!(beside.receive(), ended(Some(7), None));
    assert_eq!(beside.output(), "typed\nmine\ngreen 7 11\n");
    let beside = Beside::started(&mut rig, "kill -TERM $$; sleep 1000");
    assert_eq!(beside.receive(), ended(None, Some(15)));
    // The task does not notice.
    assert!(rig.directory.exit().unwrap().is_none());
}

#[test]
fn commands_run_on_while_their_task_is_paused() {
    let mut rig = Rig::start(
        script("echo $$ > main; while :; do sleep 0.01; done"),
        LONG_LEASE_MS,
    );
    let main: i32 = rig.scratch_file("main").parse().unwrap();
    // One that began before, with a process in the background whose parent has ended.
    let text = "sh -c '(sleep 1; echo late > background) &'; cat; sleep 2 | cat; echo done";
    let mut before = Beside::started(&mut rig, text);
    rig.send(&AgentRequest::Suspend);
    let is_main_stopped = || {
        let all = ProcessEntry::all().unwrap();
        all.iter().any(|it| it.pid == main && it.is_stopped())
    };
    eventually("the task is paused", is_main_stopped);
    let mut meanwhile = Beside::started(&mut rig, "sleep 1; echo done");
    before.input.take();
    for beside in [&mut before, &mut meanwhile] {
        assert_eq!(beside.receive(), ended(Some(0), None));
        assert_eq!(beside.output(), "done\n");
    }
    assert_eq!(rig.scratch_file("background"), "late");
    assert!(is_main_stopped());
}

#[test]
fn a_command_that_cannot_be_started_is_refused_with_the_reason() {
    let mut rig = Rig::start(script("sleep 1000"), LONG_LEASE_MS);
    drop(Beside::started(&mut rig, "true"));
    let request = ExecRequest {
        command: vec!["/nonexistent".to_owned()],
        terminal: None,
    };
    let (reader, writer) = io::pipe().unwrap();
    let files = [reader.as_fd(), writer.as_fd(), writer.as_fd()];
    let socket = exec::ask(&rig.directory, &request, files).unwrap();
    let beside = Beside {
        socket,
        input: None,
        output: File::from(OwnedFd::from(reader)),
    };
    let Some(ExecAnswer::Refused { detail }) = beside.receive() else {
        panic!("not refused");
    };
    assert!(
        detail.contains("starting `/nonexistent` failed"),
        "{detail}"
    );
}

#[test]
fn a_failed_start_while_processes_are_reaped_ends_no_other_process() {
    let mut rig = Rig::start(script("sleep 1000"), LONG_LEASE_MS);
    drop(Beside::started(&mut rig, "true"));
    // The file exists and is executable: only its execution shows that it is not a program.
    let program = rig.home.path().join("program");
    std::fs::write(&program, "#!/nonexistent\n").unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let request = ExecRequest {
        command: vec![program.to_str().unwrap().to_owned()],
        terminal: None,
    };
    for _ in 0..FAILED_STARTS {
        let (reader, writer) = io::pipe().unwrap();
        let files = [reader.as_fd(), writer.as_fd(), writer.as_fd()];
        let socket = exec::ask(&rig.directory, &request, files).unwrap();
        // Each makes the main thread reap processes.
        for _ in 0..LOOKS_PER_START {
            rig.send(&AgentRequest::Status);
        }
        for _ in 0..LOOKS_PER_START {
            rig.receive();
        }
        let beside = Beside {
            socket,
            input: None,
            output: File::from(OwnedFd::from(reader)),
        };
        let answer = beside.receive();
        assert!(
            matches!(&answer, Some(ExecAnswer::Refused { detail }) if detail.contains("program` failed")),
            "{answer:?}"
        );
    }
    let beside = Beside::started(&mut rig, "exit 3");
    assert_eq!(beside.receive(), ended(Some(3), None));
}

#[test]
fn commands_end_with_their_task() {
    let mut rig = Rig::start(
        script("mkfifo fifo; echo $$ > ready; read line < fifo"),
        LONG_LEASE_MS,
    );
    rig.scratch_file("ready");
    let beside = Beside::started(&mut rig, "echo $$ > beside; trap '' HUP TERM; sleep 1000");
    let pid = rig.scratch_file("beside");
    rig.send(&AgentRequest::Stop {
        reason: "cancel".to_owned(),
        grace_ms: 60_000,
    });
    // It ignores the signal that asks it to end, and does not delay its task's end.
    let exit = rig.receive_exit();
    assert_eq!(exit.signal, Some(15), "{exit:?}");
    assert_eq!(beside.receive(), ended(None, Some(9)));
    assert!(is_gone(&pid));
}

#[test]
fn commands_end_with_the_lease() {
    let mut rig = Rig::start(script("sleep 1000"), 1_500);
    let beside = Beside::started(&mut rig, "setsid sleep 1000 & echo $! > beside; sleep 1000");
    let pid = rig.scratch_file("beside");
    assert!(rig.receive_exit().lease_expired);
    assert_eq!(beside.receive(), ended(None, Some(9)));
    assert!(is_gone(&pid));
}

#[test]
fn a_command_ends_when_its_user_goes_away() {
    let mut rig = Rig::start(script("sleep 1000"), LONG_LEASE_MS);
    let polite = Beside::started(&mut rig, "echo $$ > polite; exec sleep 1000");
    let stubborn = Beside::started(
        &mut rig,
        "echo $$ > stubborn; trap '' HUP; while :; do sleep 1; done",
    );
    for (name, beside) in [("polite", polite), ("stubborn", stubborn)] {
        let pid = rig.scratch_file(name);
        drop(beside);
        eventually(name, || is_gone(&pid));
    }
    assert!(rig.directory.exit().unwrap().is_none());
}

#[test]
fn commands_beside_a_task_are_limited() {
    let mut rig = Rig::start(script("sleep 1000"), LONG_LEASE_MS);
    let mut running: Vec<Beside> = (0..EXEC_SESSIONS_MAX)
        .map(|_| Beside::started(&mut rig, "trap '' HUP; echo $$ > stubborn; sleep 1000"))
        .collect();
    rig.scratch_file("stubborn");
    let Some(ExecAnswer::Refused { detail }) = Beside::start(&mut rig, "true").receive() else {
        panic!("not refused");
    };
    assert!(detail.contains("EXEC_SESSIONS_MAX"), "{detail}");
    // It ignores the signal that asks it to end, and is killed in time although others keep requesting its
    // place.
    drop(running.pop());
    eventually("room for another", || {
        Beside::start(&mut rig, "true").receive() == Some(ExecAnswer::Started)
    });
}

#[test]
fn the_longest_command_that_a_replica_accepts_is_run_and_a_longer_one_is_refused() {
    const WORDS: usize = 2_048;
    let mut rig = Rig::start(script("sleep 1000"), LONG_LEASE_MS);
    let mut command = ["sh", "-c", "echo $#", "sh"].map(str::to_owned).to_vec();
    command.extend(vec!["x".repeat(125); WORDS]);
    let mut beside = Beside::start_command(&mut rig, command);
    assert_eq!(beside.receive(), Some(ExecAnswer::Started));
    assert_eq!(beside.output(), format!("{WORDS}\n"));
    assert_eq!(beside.receive(), ended(Some(0), None));
    let refused = Beside::start_command(&mut rig, vec!["x".repeat(200_000)]);
    let Some(ExecAnswer::Refused { detail }) = refused.receive() else {
        panic!("not refused");
    };
    assert!(detail.starts_with("starting `xxx"), "{detail}");
    let request = ExecRequest {
        command: vec!["x".repeat(EXEC_REQUEST_BYTES_MAX)],
        terminal: None,
    };
    let null = File::open("/dev/null").unwrap();
    let error = exec::ask(&rig.directory, &request, [null.as_fd(); 3]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(
        error.to_string().contains("EXEC_REQUEST_BYTES_MAX"),
        "{error}"
    );
}
