//! Commands that users run beside a task in a container.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use muster_supervisor::AgentRequest;
use muster_supervisor::exec::{ExecAnswer, ExecRequest};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::containers::{WORKER, contained, container, start, text_of};
use crate::exec::{ask, ended, receive_answer};
use crate::fake_engine::{FakeEngine, json, ordinary};
use crate::podman::Podman;
use crate::support::{Rig, eventually};

/// Exit code of the proxy for a command that it could not follow to its end.
const FAILED: Option<i32> = Some(125);
/// More queries than an ended command with an open stream needs to be taken as ended.
const ENOUGH_QUERIES: usize = 6;
/// More than pipes and sockets hold.
const LONG_BYTES: usize = 3 << 20;

/// A command, with the test as its user.
struct Inside {
    socket: OwnedFd,
    input: Option<File>,
    output: File,
    errors: File,
}

impl Inside {
    fn start(rig: &mut Rig, command: &[&str]) -> Self {
        let request = ExecRequest {
            command: command.iter().map(|&word| word.to_owned()).collect(),
            terminal: None,
        };
        let (their_input, input) = io::pipe().unwrap();
        let (output, their_output) = io::pipe().unwrap();
        let (errors, their_errors) = io::pipe().unwrap();
        let files = [
            their_input.as_fd(),
            their_output.as_fd(),
            their_errors.as_fd(),
        ];
        let socket = ask(rig, &request, files);
        assert_eq!(receive_answer(&socket), Some(ExecAnswer::Started));
        Self {
            socket,
            input: Some(File::from(OwnedFd::from(input))),
            output: File::from(OwnedFd::from(output)),
            errors: File::from(OwnedFd::from(errors)),
        }
    }

    fn shell(rig: &mut Rig, text: &str) -> Self {
        Self::start(rig, &["sh", "-c", text])
    }

    /// Writes this input and closes it; returns both outputs until the end.
    fn talk(&mut self, input: &[u8]) -> (String, String) {
        let mut file = self.input.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || file.write_all(&input).unwrap());
        let (mut output, mut errors) = (String::new(), String::new());
        self.output.read_to_string(&mut output).unwrap();
        self.errors.read_to_string(&mut errors).unwrap();
        writer.join().unwrap();
        (output, errors)
    }
}

/// A command on a terminal.
struct AtTerminal {
    socket: OwnedFd,
    terminal: File,
    printed: String,
}

impl AtTerminal {
    fn start(rig: &mut Rig, text: &str) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        resize(&terminal, 20, 70);
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let theirs = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        let request = ExecRequest {
            command: ["sh", "-c", text].map(str::to_owned).to_vec(),
            terminal: Some("vt100".to_owned()),
        };
        let socket = ask(rig, &request, [theirs.as_fd(); 3]);
        assert_eq!(receive_answer(&socket), Some(ExecAnswer::Started));
        Self {
            socket,
            terminal: File::from(terminal),
            printed: String::new(),
        }
    }

    fn types(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).unwrap();
    }

    /// Reads until this text was printed.
    fn wait_for_output(&mut self, text: &str) {
        while !self.printed.contains(text) {
            let mut bytes = [0u8; 1_024];
            let count = self
                .terminal
                .read(&mut bytes)
                .unwrap_or_else(|_| panic!("no {text:?} in {:?}", self.printed));
            self.printed += &String::from_utf8_lossy(&bytes[..count]);
        }
    }
}

fn resize(terminal: impl AsFd, ws_row: u16, ws_col: u16) {
    let size = Winsize {
        ws_row,
        ws_col,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}

/// Whether any process has this word in its command line.
fn runs(word: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().any(|entry| {
        let arguments = std::fs::read(entry.unwrap().path().join("cmdline")).unwrap_or_default();
        arguments
            .split(|byte| *byte == 0)
            .any(|it| it == word.as_bytes())
    })
}

pub(crate) fn is_recorded(rig: &Rig) -> bool {
    let record = rig.directory.path().join("container.json");
    std::fs::read_to_string(record).is_ok_and(|text| text.contains("start_ticks"))
}

/// A task in a container that runs until it is asked to end.
fn running(podman: &Podman) -> Rig {
    let mut task = contained(
        "trap 'exit 0' TERM; echo mine > file; echo ready; while true; do sleep 0.1; done",
    );
    task.environment = [("COLOUR".to_owned(), "green".to_owned())].into();
    container(&mut task).user = Some("1234:1234".to_owned());
    let rig = start(task, &podman.socket());
    eventually("its first process is on record", || is_recorded(&rig));
    eventually("ready", || text_of(&rig).contains("ready"));
    rig
}

#[test]
fn a_command_sees_what_its_task_sees_in_its_container() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let mut rig = running(&podman);
    let text = "cat; cat file; echo $COLOUR $MUSTER_JOB_ID $MUSTER_EPOCH; id -u; pwd; echo error >&2; exit 7";
    let mut inside = Inside::shell(&mut rig, text);
    let scratch = rig.directory.scratch().display().to_string();
    let (output, errors) = inside.talk(b"typed\n");
    assert_eq!(
        output,
        format!("typed\nmine\ngreen 7 11\n1234\n{scratch}\n")
    );
    assert_eq!(errors, "error\n");
    assert_eq!(receive_answer(&inside.socket), ended(Some(7), None));
    let inside = Inside::shell(&mut rig, "kill -TERM $$; sleep 1000");
    assert_eq!(receive_answer(&inside.socket), ended(None, Some(15)));
    let mut inside = Inside::start(&mut rig, &["nosuch"]);
    let (_, errors) = inside.talk(b"");
    assert!(errors.contains("nosuch"), "{errors}");
    assert_eq!(receive_answer(&inside.socket), ended(Some(127), None));
    // A process that it leaves behind does not delay its end.
    let inside = Inside::shell(&mut rig, "sleep 30 & exit 4");
    assert_eq!(receive_answer(&inside.socket), ended(Some(4), None));
    let mut much = Inside::start(&mut rig, &["cat"]);
    let (output, _) = much.talk(&[b'x'; LONG_BYTES]);
    assert_eq!(output.len(), LONG_BYTES);
    // The task does not notice.
    assert!(rig.directory.exit().unwrap().is_none());
}

#[test]
fn a_terminal_reaches_into_the_container() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let mut rig = running(&podman);
    let text = "stty size; echo $TERM; while read word; do stty size; echo got $word; done; exit 3";
    let mut inside = AtTerminal::start(&mut rig, text);
    inside.wait_for_output("20 70\r\nvt100\r\n");
    resize(&inside.terminal, 33, 44);
    // The new size arrives soon, and asynchronously.
    eventually("the new size", || {
        inside.types("again\r");
        inside.wait_for_output("got again\r\n");
        let seen = inside.printed.contains("33 44\r\n");
        inside.printed.clear();
        seen
    });
    // Only the terminal inside interprets keys: it alone echoes.
    inside.types("once\x10\r");
    inside.wait_for_output("once^P\r\n33 44\r\ngot once\x10\r\n");
    inside.types("\x04");
    assert_eq!(receive_answer(&inside.socket), ended(Some(3), None));
    let mut inside = AtTerminal::start(&mut rig, "echo up; exec sleep 1000");
    inside.wait_for_output("up");
    inside.types("\x03");
    assert_eq!(receive_answer(&inside.socket), ended(None, Some(2)));
}

#[test]
fn a_command_in_a_container_ends_when_its_user_goes_away() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let mut rig = running(&podman);
    let word = |name: &str| format!("{name}-{}", rig.directory.path().display());
    let (polite, stubborn, seated) = (word("polite"), word("stubborn"), word("seated"));
    let text = "trap '' HUP; echo $0; while true; do sleep 0.1; done";
    let commands = [
        Inside::start(
            &mut rig,
            &["sh", "-c", "echo $0; sleep 1000; true", &polite],
        ),
        Inside::start(&mut rig, &["sh", "-c", text, &stubborn]),
    ];
    for (name, mut inside) in [&polite, &stubborn].into_iter().zip(commands) {
        let mut printed = vec![0u8; name.len()];
        inside.output.read_exact(&mut printed).unwrap();
        assert!(runs(name));
        drop(inside.socket);
        eventually(name, || !runs(name));
    }
    // Signals its terminal alone.
    let text = format!("exec sh -c 'echo up; while true; do sleep 0.1; done' {seated}");
    let mut inside = AtTerminal::start(&mut rig, &text);
    inside.wait_for_output("up");
    drop(inside.terminal);
    eventually(&seated, || !runs(&seated));
    assert!(rig.directory.exit().unwrap().is_none());
}

#[test]
fn commands_end_with_the_container_of_their_task_and_are_paused_with_it() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let mut rig = running(&podman);
    let word = format!("stubborn-{}", rig.directory.path().display());
    let text = "trap '' HUP TERM; echo up; while true; do sleep 0.1; done";
    let mut stubborn = Inside::start(&mut rig, &["sh", "-c", text, &word]);
    stubborn.output.read_exact(&mut [0u8; 3]).unwrap();
    rig.send(&AgentRequest::Suspend);
    let expected = "starting `sh` in the container muster-7-0-11 failed: the task is suspended";
    // A request while the engine is busy pausing is refused with the engine's message.
    eventually("it is paused", || {
        let mut late = Inside::shell(&mut rig, "true");
        let message = late.talk(b"").1;
        receive_answer(&late.socket) == ended(FAILED, None) && message.trim() == expected
    });
    rig.send(&AgentRequest::Resume);
    rig.send(&AgentRequest::Stop {
        reason: "cancel".to_owned(),
        grace_ms: 60_000,
    });
    assert_eq!(rig.receive_exit().code, Some(0));
    assert_eq!(receive_answer(&stubborn.socket), ended(None, Some(9)));
    assert!(!runs(&word));
    assert!(podman.containers().is_empty());
}

/// A process of the host that a fake engine reports as one in a container.
struct Process(Child);

impl Process {
    fn start(text: &str) -> Self {
        // The caller of the tests may ignore signals, as `nohup` does.
        let mut command = Command::new("env");
        command.args(["--default-signal", "sh", "-c", text]);
        Self(command.process_group(0).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Including its children.
        if let Some(group) = Pid::from_raw(self.0.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        drop(self.0.wait());
    }
}

/// State of a command as reported by the engine: whether it runs, its process id on the host, its exit code.
type CommandState = Arc<Mutex<(bool, u32, i32)>>;

/// An engine with a container that runs until its client goes, and with a command that behaves as a function
/// says.
fn engine(
    first: &Process,
    state: &CommandState,
    command: impl Fn(&mut UnixStream) + Send + Sync + 'static,
) -> FakeEngine {
    let inspected = serde_json::json!({
        "State": {"Status": "running", "Pid": first.pid()},
        "Config": {"Labels": {"muster.worker": WORKER}},
    })
    .to_string();
    let state = Arc::clone(state);
    FakeEngine::start(move |request, stream| match request {
        request if request.starts_with("POST /containers/create") => {
            json(stream, 201, r#"{"Id": "c1"}"#);
        }
        request if request.starts_with("POST /containers/c1/attach") => hold(stream),
        "POST /containers/c1/start" => json(stream, 204, ""),
        "POST /containers/c1/wait" => drop(io::copy(stream, &mut io::sink())),
        request if request.starts_with("DELETE") => json(stream, 204, ""),
        "GET /containers/c1/json" | "GET /containers/muster-7-0-11/json" => {
            json(stream, 200, &inspected);
        }
        "POST /containers/muster-7-0-11/exec" => json(stream, 201, r#"{"Id": "e1"}"#),
        "POST /exec/e1/start" => command(stream),
        "GET /exec/e1/json" => {
            let (runs, pid, code) = *state.lock().unwrap();
            let code = (!runs).then_some(code);
            let answer = serde_json::json!({"Running": runs, "Pid": pid, "ExitCode": code});
            json(stream, 200, &answer.to_string());
        }
        request if request.starts_with("POST /exec/e1/resize") => match *state.lock().unwrap() {
            (true, ..) => json(stream, 200, ""),
            (false, ..) => json(stream, 409, r#"{"message": "it has stopped"}"#),
        },
        request => ordinary(request, stream),
    })
}

/// Turns a connection into a stream.
fn upgrade(stream: &mut UnixStream) {
    drop(stream.write_all(b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n"));
}

/// Sends nothing until its client has gone.
fn hold(stream: &mut UnixStream) {
    upgrade(stream);
    drop(io::copy(stream, &mut io::sink()));
}

fn frame(number: u8, text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap().to_be_bytes();
    [&[number, 0, 0, 0][..], &length, text].concat()
}

/// A task in a container of an engine.
fn task_of(engine: &FakeEngine) -> Rig {
    let rig = start(contained("true"), &engine.socket());
    eventually("its first process is on record", || is_recorded(&rig));
    rig
}

#[test]
fn an_engine_receives_the_command_and_its_outputs_are_separated() {
    let first = Process::start("exec sleep 1000");
    let state = CommandState::default();
    let ends = Arc::clone(&state);
    let engine = engine(&first, &state, move |stream| {
        *ends.lock().unwrap() = (true, 0, 0);
        upgrade(stream);
        let mut input = Vec::new();
        // All input has arrived once the user's input has ended, and output continues.
        stream.read_to_end(&mut input).unwrap();
        let text = format!("{} bytes\n", input.len());
        let all = [
            frame(2, b"war"),
            frame(1, text.as_bytes()),
            frame(2, b"ning"),
        ]
        .concat();
        for piece in all.chunks(5) {
            stream.write_all(piece).unwrap();
        }
        for _ in 0..LONG_BYTES / (64 << 10) {
            stream.write_all(&frame(1, &[b'x'; 64 << 10])).unwrap();
        }
        *ends.lock().unwrap() = (false, 0, 9);
    });
    let mut rig = task_of(&engine);
    let mut inside = Inside::start(&mut rig, &["tool", "--flag"]);
    let (output, errors) = inside.talk(&[b'i'; LONG_BYTES]);
    assert_eq!(errors, "warning");
    let (first_line, rest) = output.split_once('\n').unwrap();
    assert_eq!(
        (first_line, rest.len()),
        (&*format!("{LONG_BYTES} bytes"), LONG_BYTES)
    );
    assert_eq!(receive_answer(&inside.socket), ended(Some(9), None));
    assert_eq!(
        engine.body_of("POST /containers/muster-7-0-11/exec"),
        serde_json::json!({
            "AttachStdin": true, "AttachStdout": true, "AttachStderr": true, "Tty": false,
            "Cmd": ["tool", "--flag"],
        })
    );
    let begun = engine.body_of("POST /exec/e1/start");
    assert_eq!(begun, serde_json::json!({"Detach": false, "Tty": false}));
    assert!(!engine.was_requested("POST /exec/e1/resize"));
}

#[test]
fn an_engine_receives_the_size_of_a_terminal_and_its_keys_unchanged() {
    let first = Process::start("exec sleep 1000");
    let state = CommandState::new(Mutex::new((true, first.pid(), 0)));
    let typed: Arc<Mutex<Vec<u8>>> = Arc::default();
    let (keys, ends) = (Arc::clone(&typed), Arc::clone(&state));
    let engine = engine(&first, &state, move |stream| {
        upgrade(stream);
        stream.write_all(b"\x02\0\0\0no frame").unwrap();
        let mut bytes = [0u8; 64];
        loop {
            let count = stream.read(&mut bytes).unwrap_or_default();
            let mut keys = keys.lock().unwrap();
            keys.extend(&bytes[..count]);
            if count == 0 || keys.ends_with(b"q") {
                *ends.lock().unwrap() = (false, 0, 130);
                return;
            }
        }
    });
    let mut rig = task_of(&engine);
    let mut inside = AtTerminal::start(&mut rig, "top");
    inside.wait_for_output("\x02\0\0\0no frame");
    inside.types("\x03\x10\r\n\x04");
    eventually("its keys", || *typed.lock().unwrap() == b"\x03\x10\r\n\x04");
    eventually("its size", || {
        engine.was_requested("POST /exec/e1/resize?h=20&w=70")
    });
    resize(&inside.terminal, 33, 44);
    eventually("its new size", || {
        engine.was_requested("POST /exec/e1/resize?h=33&w=44")
    });
    let begun = engine.body_of("POST /exec/e1/start");
    assert_eq!(begun["ConsoleSize"], serde_json::json!([20, 70]));
    let made = engine.body_of("POST /containers/muster-7-0-11/exec");
    assert_eq!(
        (&made["Tty"], &made["Env"]),
        (&true.into(), &serde_json::json!(["TERM=vt100"]))
    );
    inside.types("q");
    // 130 is a shell's exit code for SIGINT.
    assert_eq!(receive_answer(&inside.socket), ended(None, Some(2)));
}

#[test]
fn an_exit_code_is_not_taken_from_an_engine_that_has_none_yet() {
    let first = Process::start("exec sleep 1000");
    let mut command = Process::start("exec sleep 1000");
    let state = CommandState::new(Mutex::new((true, command.pid(), 0)));
    let (end, ends) = std::sync::mpsc::sync_channel::<()>(1);
    let (ends, noted) = (Mutex::new(ends), Arc::clone(&state));
    let engine = engine(&first, &state, move |stream| {
        upgrade(stream);
        let _ = ends.lock().unwrap().recv();
        // It records the end before it ends the stream.
        *noted.lock().unwrap() = (false, 0, 130);
    });
    let mut rig = task_of(&engine);
    let inside = AtTerminal::start(&mut rig, "top");
    eventually("its size", || {
        engine.was_requested("POST /exec/e1/resize?h=20&w=70")
    });
    // Like podman, which learns from a resize that the process is gone.
    state.lock().unwrap().0 = false;
    resize(&inside.terminal, 33, 44);
    let queries = || engine.times_requested("GET /exec/e1/json");
    eventually("a size that comes too late", || {
        engine.was_requested("POST /exec/e1/resize?h=33&w=44")
    });
    let before = queries();
    command.0.kill().unwrap();
    command.0.wait().unwrap();
    eventually("queries at the end", || queries() > before + ENOUGH_QUERIES);
    end.send(()).unwrap();
    assert_eq!(receive_answer(&inside.socket), ended(None, Some(2)));
}

#[test]
fn a_command_whose_user_goes_away_is_killed_by_its_number_on_the_host() {
    let first = Process::start("exec sleep 1000");
    for (text, signal) in [
        ("echo; exec sleep 1000", 1),
        ("trap '' HUP; echo; while true; do sleep 0.1; done", 9),
    ] {
        let mut command = Process::start(text);
        let state = CommandState::new(Mutex::new((true, command.pid(), 0)));
        let engine = engine(&first, &state, hold);
        let mut rig = task_of(&engine);
        let inside = Inside::start(&mut rig, &["tool"]);
        eventually("a look", || engine.was_requested("GET /exec/e1/json"));
        drop(inside.socket);
        let status = command.0.wait().unwrap();
        let ended_by = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(ended_by, Some(signal), "{text}");
        assert!(rig.directory.exit().unwrap().is_none());
    }
}

#[test]
fn a_refusal_of_the_engine_names_the_program_and_the_container() {
    let first = Process::start("exec sleep 1000");
    let state = CommandState::default();
    let engine = engine(&first, &state, |stream| {
        json(stream, 500, r#"{"message": "no room for a process"}"#);
    });
    let mut rig = task_of(&engine);
    let mut inside = Inside::start(&mut rig, &["tool"]);
    let (output, errors) = inside.talk(b"");
    assert_eq!(
        (&*output, &*errors),
        (
            "",
            "starting `tool` in the container muster-7-0-11 failed: starting the command: container engine: \
             no room for a process (500)\n"
        )
    );
    assert_eq!(receive_answer(&inside.socket), ended(FAILED, None));
}

#[test]
fn a_command_whose_engine_goes_away_is_killed_and_its_exit_status_is_unknown() {
    let first = Process::start("exec sleep 1000");
    let mut command = Process::start("exec sleep 1000");
    let state = CommandState::new(Mutex::new((true, command.pid(), 0)));
    let (hang_up, waits) = std::sync::mpsc::sync_channel::<()>(1);
    let waits = Mutex::new(waits);
    let engine = engine(&first, &state, move |stream| {
        upgrade(stream);
        let _ = waits.lock().unwrap().recv();
    });
    let mut rig = task_of(&engine);
    let mut inside = Inside::start(&mut rig, &["tool"]);
    eventually("a look", || engine.was_requested("GET /exec/e1/json"));
    std::fs::remove_file(engine.socket()).unwrap();
    hang_up.send(()).unwrap();
    let (_, errors) = inside.talk(b"");
    let expected = "`tool` in the container muster-7-0-11: exit status unknown: the container engine is unreachable\n";
    assert_eq!(errors, expected);
    assert_eq!(receive_answer(&inside.socket), ended(FAILED, None));
    let status = command.0.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9)
    );
}

#[test]
fn a_command_in_a_missing_container_fails() {
    let engine = FakeEngine::start(|request, stream| match request {
        request if request.starts_with("POST /images/create") => {
            drop(io::copy(stream, &mut io::sink()));
        }
        request if request.starts_with("GET /images/") => {
            json(stream, 404, r#"{"message": "no such image"}"#);
        }
        request => ordinary(request, stream),
    });
    let mut rig = start(contained("true"), &engine.socket());
    eventually("a pull", || engine.was_requested("POST /images/create"));
    let mut inside = Inside::start(&mut rig, &["tool"]);
    let (_, errors) = inside.talk(b"");
    assert!(
        errors.starts_with(
            "starting `tool` in the container muster-7-0-11 failed: container not running"
        ),
        "{errors}"
    );
    assert_eq!(receive_answer(&inside.socket), ended(FAILED, None));
}
