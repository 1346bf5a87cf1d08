//! Starts real supervisors for tests and communicates with them.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use muster_model::command::Exit;
use muster_model::desired::TaskAssignment;
use muster_supervisor::lease::clock::boottime_ms;
use muster_supervisor::process::ProcessIdentity;
pub(crate) use muster_supervisor::testing::{TIMEOUT_MS, eventually, is_gone, kill_host, script};
use muster_supervisor::{
    AgentRequest, Confinement, LogLimits, SPEC_FORMAT, SecretFolders, SupervisorMessage,
    TaskDirectory, TaskIdentity, TaskSpec,
};

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_muster-supervise");
/// Default limit of open files of a supervisor.
pub(crate) const FILES_MAX: u32 = 1_024;
/// How long a supervisor is observed to see whether it polls rarely.
const WINDOW: Duration = Duration::from_millis(400);
/// Maximum waits in that time; every 5 ms it would be 80.
const WAITS_MAX: u64 = 10;
/// A lease that no test outlives.
pub(crate) const LONG_LEASE_MS: u64 = 600_000;

/// The specification that an agent would write for a task with its files below `home`.
pub(crate) fn spec_in(home: &Path, assignment: TaskAssignment, lease_ms: u64) -> TaskSpec {
    TaskSpec {
        format: SPEC_FORMAT,
        assignment,
        deadline_boottime_ms: boottime_ms() + lease_ms,
        log_directory: home.join("logs"),
        log_limits: LogLimits::default(),
        checkpoint_directory: home.join("checkpoints"),
        checkpoint_scan_ms: 20,
        cgroup: None,
        engine: None,
        identity: TaskIdentity::default(),
        confinement: Confinement::default(),
        secrets: SecretFolders::default(),
        checkpoint_directory_is_new: false,
        lease_warning_ms: 0,
    }
}

/// One supervisor, with the test as its agent.
pub(crate) struct Rig {
    pub(crate) home: tempfile::TempDir,
    pub(crate) directory: TaskDirectory,
    pub(crate) supervisor: Child,
    agent: BufReader<UnixStream>,
}

impl Rig {
    /// Starts a task with a lease of `lease_ms` milliseconds from now.
    pub(crate) fn start(assignment: TaskAssignment, lease_ms: u64) -> Self {
        Self::start_with(assignment, lease_ms, LogLimits::default())
    }

    pub(crate) fn start_with(
        assignment: TaskAssignment,
        lease_ms: u64,
        log_limits: LogLimits,
    ) -> Self {
        Self::start_spec(assignment, lease_ms, |spec| spec.log_limits = log_limits)
    }

    pub(crate) fn start_spec(
        assignment: TaskAssignment,
        lease_ms: u64,
        change: impl FnOnce(&mut TaskSpec),
    ) -> Self {
        Self::start_prepared(assignment, lease_ms, FILES_MAX, |spec, _| change(spec))
    }

    /// Starts a task whose supervisor may open `files_max` files, in a directory that is prepared first.
    pub(crate) fn start_prepared(
        assignment: TaskAssignment,
        lease_ms: u64,
        files_max: u32,
        prepare: impl FnOnce(&mut TaskSpec, &TaskDirectory),
    ) -> Self {
        let home = tempfile::tempdir().unwrap();
        let directory = TaskDirectory::new(home.path().join("tasks/7-0-11"));
        let mut spec = spec_in(home.path(), assignment, lease_ms);
        std::fs::create_dir_all(directory.control()).unwrap();
        prepare(&mut spec, &directory);
        directory.create(&spec).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(TIMEOUT_MS)))
            .unwrap();
        // Like an agent under `nohup` whose own parent left a file open.
        let supervisor = Command::new("sh")
            .args([
                "-c",
                "trap '' HUP; ulimit -n $2; exec \"$0\" supervise \"$1\" 9</dev/zero",
                PROGRAM,
            ])
            .arg(directory.path())
            .arg(files_max.to_string())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .unwrap();
        Self {
            home,
            directory,
            supervisor,
            agent: BufReader::new(ours),
        }
    }

    /// Closes the connection and opens another, as a restarted agent does.
    pub(crate) fn reconnect(&mut self) {
        let stream = UnixStream::connect(self.directory.agent_socket()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(TIMEOUT_MS)))
            .unwrap();
        self.agent = BufReader::new(stream);
    }

    pub(crate) fn send(&mut self, request: &AgentRequest) {
        self.send_all(std::slice::from_ref(request));
    }

    /// Sends several requests by one write.
    pub(crate) fn send_all(&mut self, requests: &[AgentRequest]) {
        let mut lines = Vec::new();
        for request in requests {
            serde_json::to_writer(&mut lines, request).unwrap();
            lines.push(b'\n');
        }
        self.agent.get_mut().write_all(&lines).unwrap();
    }

    /// The supervisor's next message.
    pub(crate) fn receive(&mut self) -> SupervisorMessage {
        self.try_receive().unwrap()
    }

    /// The supervisor's next message; `None` if it hung up.
    pub(crate) fn try_receive(&mut self) -> Option<SupervisorMessage> {
        let mut line = String::new();
        let bytes = self.agent.read_line(&mut line).unwrap();
        (bytes > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    /// Whether any live process has the task's environment.
    pub(crate) fn lives(&self) -> bool {
        let mark = format!("MUSTER_CTL_DIR={}", self.directory.control().display());
        std::fs::read_dir("/proc").unwrap().any(|entry| {
            // An unreadable process has ended, or does not belong to a task.
            let environment = std::fs::read(entry.unwrap().path().join("environ"));
            environment
                .unwrap_or_default()
                .split(|byte| *byte == 0)
                .any(|variable| variable == mark.as_bytes())
        })
    }

    pub(crate) fn receive_started(&mut self) -> ProcessIdentity {
        let SupervisorMessage::Started { pid } = self.receive() else {
            panic!("the task was not started");
        };
        let process = self.directory.process().unwrap().unwrap();
        assert_eq!(process.pid, pid);
        process
    }

    /// Waits for the end, and checks that the record on disk equals the supervisor's report.
    pub(crate) fn receive_exit(&mut self) -> Exit {
        loop {
            if let SupervisorMessage::Exited(exit) = self.receive() {
                assert_eq!(self.directory.exit().unwrap().unwrap().exit, exit);
                assert!(self.supervisor.wait().unwrap().success());
                return exit;
            }
        }
    }

    /// Waits until the supervisor checks rarely what is left of its task.
    pub(crate) fn wait_until_checks_are_rare(&self) {
        let status = format!("/proc/{}/status", self.supervisor.id());
        let waits = || {
            let text = std::fs::read_to_string(&status).unwrap();
            let line = text
                .lines()
                .find_map(|it| it.strip_prefix("voluntary_ctxt_switches:"));
            line.unwrap().trim().parse::<u64>().unwrap()
        };
        eventually("it checks seldom", || {
            let before = waits();
            std::thread::park_timeout(WINDOW);
            waits() - before < WAITS_MAX
        });
    }

    /// The complete output of the task that was kept.
    pub(crate) fn output(&self) -> Vec<u8> {
        read_segments(&self.home.path().join("logs"))
    }

    /// Waits until a file of the task's scratch directory has content, and returns it.
    pub(crate) fn scratch_file(&self, name: &str) -> String {
        let path = self.directory.scratch().join(name);
        let mut text = String::new();
        eventually(name, || {
            text = std::fs::read_to_string(&path).unwrap_or_default();
            text.ends_with('\n')
        });
        text.trim().to_owned()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        kill_host(self.home.path());
        drop(self.supervisor.wait());
    }
}

pub(crate) fn read_segments(logs: &Path) -> Vec<u8> {
    // Nothing is created before the first byte.
    let Ok(entries) = std::fs::read_dir(logs) else {
        return Vec::new();
    };
    let is_segment = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("stdout.") || name.starts_with("stderr.")
    };
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(is_segment)
        .collect();
    paths.sort();
    paths
        .iter()
        .flat_map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// Prints why a test cannot run here.
pub(crate) fn skipped<T>(why: &str) -> Option<T> {
    // The test's own output, which the harness shows.
    drop(writeln!(std::io::stderr(), "skipped: {why}"));
    None
}
