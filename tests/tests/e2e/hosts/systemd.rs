//! Units of `deploy/systemd`: systemd accepts them, they start existing commands, and the program notifies
//! systemd as they declare.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use muster_ports::ReservedAddresses;
use muster_tests::{eventually, muster_binary, page, skip};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const PROGRAM: &str = "/usr/bin/muster";

fn units() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd");
    let mut units: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    units.sort();
    assert_eq!(units.len(), 2, "{units:?}");
    units
}

/// The value of a setting of a unit.
fn setting<'a>(unit: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = unit.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[test]
fn systemd_verifies_the_units_without_warnings() {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        skip("systemd-analyze is not installed (Debian: systemd)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for unit in units() {
        // The verified files must exist: the program at its build location, and its user.
        let text = fs::read_to_string(&unit).unwrap();
        let text = text
            .replace(PROGRAM, muster_binary().to_str().unwrap())
            .replace("=muster\n", "=root\n");
        let copy = folder.path().join(unit.file_name().unwrap());
        fs::write(&copy, text).unwrap();
        let verified = Command::new("systemd-analyze")
            .arg("verify")
            .arg(&copy)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success(), "{}: {stderr}", unit.display());
        assert_eq!(stderr, "", "{}", unit.display());
    }
}

#[test]
fn units_start_the_program_with_valid_arguments() {
    for unit in units() {
        let text = fs::read_to_string(&unit).unwrap();
        let start = setting(&text, "ExecStart").unwrap();
        let args = start.strip_prefix(PROGRAM).unwrap().split_whitespace();
        let args = args.map(|argument| {
            argument
                .replace("%S", "/nowhere")
                .replace("/etc", "/nowhere")
        });
        let ran = Command::new(muster_binary()).args(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr);
        // It got as far as the settings, which do not exist.
        assert!(stderr.contains("/nowhere/muster/"), "{stderr}");
        assert!(!stderr.contains("Usage"), "{stderr}");
    }
}

/// An agent is restarted without its tasks: with systemd's default, `control-group`, each upgrade would
/// kill them all.
#[test]
fn stopping_the_agent_stops_the_agent_alone() {
    let worker = units()
        .into_iter()
        .find(|unit| unit.ends_with("muster-worker.service"));
    let text = fs::read_to_string(worker.unwrap()).unwrap();
    assert_eq!(setting(&text, "KillMode"), Some("process"));
    assert_eq!(setting(&text, "Delegate"), Some("yes"));
    assert_eq!(setting(&text, "Restart"), Some("always"));
}

/// Both notify systemd that they serve and that they are alive. A frozen agent has to be back before tasks
/// under the default lease are asked to stop, which happens after 20 s (`docs/operations.md`); a heartbeat
/// may be 5 s old by then, and starting takes time.
#[test]
fn units_notify_systemd_and_have_a_watchdog() {
    for unit in units() {
        let text = fs::read_to_string(&unit).unwrap();
        assert_eq!(setting(&text, "Type"), Some("notify"));
        assert_eq!(setting(&text, "NotifyAccess"), Some("main"));
        assert_eq!(setting(&text, "WatchdogSec"), Some("10s"));
    }
}

#[test]
fn enabled_units_start_on_boot() {
    for unit in units() {
        let text = fs::read_to_string(&unit).unwrap();
        assert_eq!(setting(&text, "WantedBy"), Some("multi-user.target"));
    }
}

/// Maximum wait for a notification of a service.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(30);
/// The value of a unit's `WatchdogSec=3s` that the service gets, in microseconds.
const TIMEOUT_MICROS: &str = "3000000";

/// A service that uses this test as its systemd. It ends when it is dropped.
struct Service {
    child: Child,
    socket: UnixDatagram,
    metrics: String,
    _ports: ReservedAddresses,
    _folder: TempDir,
}

impl Service {
    fn start(role: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(NOTIFICATION_TIMEOUT)).unwrap();
        let ports = ReservedAddresses::draw(1).unwrap();
        let metrics = ports.addresses()[0].to_string();
        let child = Command::new(muster_binary())
            .args([role, "--metrics-listen", &metrics, "--data-dir"])
            .arg(folder.path().join("data"))
            .args(arguments)
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", TIMEOUT_MICROS)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            socket,
            metrics,
            _ports: ports,
            _folder: folder,
        }
    }

    /// The next notification with this beginning.
    fn receive(&self, beginning: &str) -> String {
        let mut bytes = [0u8; 256];
        loop {
            let count = self.socket.recv(&mut bytes);
            let count = count.unwrap_or_else(|error| panic!("no {beginning}: {error}"));
            let notification = String::from_utf8(bytes[..count].to_vec()).unwrap();
            if notification.starts_with(beginning) {
                return notification;
            }
        }
    }

    /// Ends it like systemd.
    fn terminate(&mut self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may already have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[tokio::test]
async fn a_replica_notifies_systemd_of_readiness_liveness_and_stop() {
    let reserved = ReservedAddresses::draw(1).unwrap();
    let address = reserved.addresses()[0].to_string();
    let peers = format!("1={address}");
    let mut replica = Service::start("scheduler", &["--listen", &address, "--peers", &peers]);
    replica.receive("READY=1");
    // It served before it notified.
    let lives = page(&replica.metrics, "/livez").await.unwrap();
    assert_eq!(lives, "ok\n");
    replica.receive("STATUS=leads in term");
    replica.receive("WATCHDOG=1");
    let ready = page(&replica.metrics, "/readyz").await.unwrap();
    assert_eq!(ready, "ok\n");
    replica.terminate();
    replica.receive("STOPPING=1");
    let ended = replica.child.wait().unwrap();
    assert!(ended.success(), "{ended}");
}

/// Systemd must not end the first replica of a new group, or of one without a majority, for lack of the
/// others; a load balancer must not send it requests.
#[tokio::test]
async fn a_replica_without_a_majority_is_up_and_not_ready() {
    let reserved = ReservedAddresses::draw(3).unwrap();
    let [address, second, third] = reserved.addresses() else {
        panic!("expected three addresses");
    };
    let address = address.to_string();
    let peers = format!("1={address},2={second},3={third}");
    let replica = Service::start("scheduler", &["--listen", &address, "--peers", &peers]);
    replica.receive("READY=1");
    replica.receive("STATUS=knows no leader");
    let lives = page(&replica.metrics, "/livez").await.unwrap();
    assert_eq!(lives, "ok\n");
    let ready = page(&replica.metrics, "/readyz").await.unwrap();
    assert_ne!(ready, "ok\n");
}

#[tokio::test]
async fn an_agent_is_up_without_a_leader_and_ready_with_one() {
    let reserved = ReservedAddresses::draw(1).unwrap();
    let address = reserved.addresses()[0].to_string();
    // The tests may run as root.
    let alone = ["--cgroups", "off", "--gpus", "none", "--tasks-allow-root"];
    let agent = Service::start(
        "worker",
        &[&["--schedulers", &address], &alone[..]].concat(),
    );
    agent.receive("READY=1");
    agent.receive("WATCHDOG=1");
    let ready = page(&agent.metrics, "/readyz").await.unwrap();
    assert_eq!(ready, "the worker has no session with a leader\n");

    let peers = format!("1={address}");
    let _replica = Service::start("scheduler", &["--listen", &address, "--peers", &peers]);
    eventually("the agent has a session", async || {
        let ready = page(&agent.metrics, "/readyz").await.ok()?;
        (ready == "ok\n").then_some(())
    })
    .await;
}
