//! A place of its own for the trials: namespaces for network and mounts that nobody else sees, so that nothing which the
//! trials build can stay when they end, however they end.
//!
//! The program starts itself again in there and stays outside as a guard. What is inside listens to its standard input,
//! which the guard holds and says nothing on: once it ends, the guard is gone or wants an end.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Runs `program` with these arguments in a place of its own, until it ends. Asks it to end when we are asked to.
///
/// Without root's rights it is root in a user namespace, where the system lets us have one.
///
/// # Errors
/// If `unshare` cannot be started or signals cannot be heard.
pub async fn run_apart(program: &Path, arguments: &[OsString]) -> io::Result<ExitStatus> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut child = start(program, arguments)?;
    let guard = child.stdin.take();
    tokio::select! {
        ended = child.wait() => return ended,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    drop(guard);
    child.wait().await
}

fn start(program: &Path, arguments: &[OsString]) -> io::Result<Child> {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["--net", "--mount", "--propagation", "private", "--"])
        .arg(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
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
