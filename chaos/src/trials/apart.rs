//! A place of its own for the trials: namespaces for network and mounts that nobody else sees, so that nothing which the
//! trials build can stay when they end, however they end.
//!
//! The program starts itself again in there and stays outside as a guard. What is inside listens to its standard input,
//! which the guard holds and says nothing on: once it ends, the guard is gone or wants an end. What needs no such place has a
//! guard nevertheless.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::cluster::NetworkKind;

/// Makes in a place of its own what a network of namespaces is made of.
const PROBE: &str = "ip link set lo up && ip link add switch type bridge && ip link add port type veth peer name eth0 \
    && nsenter --net=/proc/self/ns/net true";

/// Runs `program` with these arguments until it ends; for a network of namespaces, in a place of its own. Asks it to end when
/// we are asked to.
///
/// # Errors
/// If it, or `unshare`, cannot be started or signals cannot be heard.
pub async fn run_guarded(
    network: NetworkKind,
    program: &Path,
    arguments: &[OsString],
) -> io::Result<ExitStatus> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let command = match network {
        NetworkKind::Namespaces => apart(program),
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

/// Why no place of its own with a network of namespaces can be made here; none where it can.
pub async fn refusal() -> Option<String> {
    let mut probe = apart(Path::new("sh"));
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

/// The command that runs `program` in a place of its own. Without root's rights it is root in a user namespace, where the
/// system lets us have one.
fn apart(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["--net", "--mount", "--propagation", "private", "--"])
        .arg(program);
    command
}

/// Inside: completes once the guard is gone or wants an end.
///
/// # Errors
/// If no thread can be started that listens.
pub fn guard_gone() -> io::Result<oneshot::Receiver<()>> {
    let (tell, told) = oneshot::channel();
    std::thread::Builder::new()
        .name("guard".to_owned())
        .spawn(move || {
            // Whatever comes, or fails to come: an end of the stream is an end.
            drop(io::stdin().lock().read_to_end(&mut Vec::new()));
            let _not_heard = tell.send(());
        })?;
    Ok(told)
}
