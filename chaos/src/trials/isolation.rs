//! Isolated environment for the trials: private namespaces for network and mounts, so that nothing created
//! by the trials remains when they end, however they end.
//!
//! The program restarts itself in there while the outer process remains as a guard. The inner process reads
//! its standard input, which the guard holds open without writing: end of file means that the guard is gone
//! or requests an end. A run without namespaces has a guard nevertheless.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::cluster::NetworkKind;

/// Tries in an isolated environment what a network of namespaces needs.
const PROBE: &str = "ip link set lo up && ip link add switch type bridge && ip link add port type veth peer name eth0 \
    && nsenter --net=/proc/self/ns/net true";

/// Runs `program` with these arguments until it ends; for a network of namespaces, in an isolated
/// environment. Forwards a request to end.
///
/// # Errors
/// If the program or `unshare` cannot be started, or signals cannot be received.
pub async fn run_guarded(
    network: NetworkKind,
    program: &Path,
    arguments: &[OsString],
) -> io::Result<ExitStatus> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let command = match network {
        NetworkKind::Namespaces => isolated_command(program),
        NetworkKind::Proxies => Command::new(program),
    };
    let mut child = start(command, arguments)?;
    let guard = child.stdin.take();
    tokio::select! {
        ended = child.wait() => return ended,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    drop(guard);
    child.wait().await
}

/// Reason why no isolated environment with a network of namespaces can be created here; `None` if it can.
pub async fn refusal() -> Option<String> {
    let mut probe = isolated_command(Path::new("sh"));
    probe.args(["-c", PROBE]).stdin(Stdio::null());
    match probe.output().await {
        Err(error) => Some(format!("`unshare`: {error}")),
        Ok(probed) if probed.status.success() => None,
        Ok(probed) => {
            let complaint = String::from_utf8_lossy(&probed.stderr);
            let first = complaint.lines().next().map(str::to_owned);
            Some(first.unwrap_or_else(|| format!("`unshare`: {}", probed.status)))
        }
    }
}

fn start(mut command: Command, arguments: &[OsString]) -> io::Result<Child> {
    command.args(arguments).stdin(Stdio::piped()).spawn()
}

/// The command that runs `program` in an isolated environment. Without root rights it is root in a user
/// namespace, where the system allows one.
fn isolated_command(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["--net", "--mount", "--propagation", "private", "--"])
        .arg(program);
    command
}

/// For the inner process: completes once the guard is gone or requests an end.
///
/// # Errors
/// If the listening thread cannot be started.
pub fn guard_gone() -> io::Result<oneshot::Receiver<()>> {
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new()
        .name("guard".to_owned())
        .spawn(move || {
            // Data, end of file and errors all mean the end.
            drop(io::stdin().lock().read_to_end(&mut Vec::new()));
            let _receiver_is_gone = sender.send(());
        })?;
    Ok(receiver)
}
