//! The agent's side of the pipes to one helper.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;

use crate::gpu::GpuError;
use crate::gpu::helper::messages::{Answer, HelperRequest, Reply, Request};
use crate::limits::{GPU_HELPER_LOG_BYTES_MAX, GPU_MESSAGE_BYTES_MAX, GPU_QUESTIONS_MAX};

/// Requests to one helper and its answers.
#[derive(Debug)]
pub(super) struct Link {
    pid: u32,
    stdin: Mutex<ChildStdin>,
    waiting: Arc<Mutex<PendingRequests>>,
    next_id: AtomicU64,
}

/// Requests that wait for answers.
#[derive(Debug, Default)]
struct PendingRequests {
    asked: BTreeMap<u64, SyncSender<Result<Reply, GpuError>>>,
    /// Why no more answers come, once the link is closed.
    closed_reason: Option<String>,
}

impl Link {
    /// Takes a new helper's pipes and starts a thread for its answers and one for its log.
    pub(super) fn of(child: &mut Child) -> std::io::Result<Self> {
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(std::io::Error::other("a helper has no pipes"));
        };
        let pid = child.id();
        let waiting = Arc::<Mutex<PendingRequests>>::default();
        let receiving = Arc::clone(&waiting);
        std::thread::Builder::new()
            .name("gpu-answers".to_owned())
            .spawn(move || receive(stdout, &receiving))?;
        std::thread::Builder::new()
            .name("gpu-helper-log".to_owned())
            .spawn(move || forward_log(stderr, pid))?;
        Ok(Self {
            pid,
            stdin: Mutex::new(stdin),
            waiting,
            next_id: AtomicU64::new(1),
        })
    }

    pub(super) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether no more answers come.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.waiting).closed_reason.is_some()
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// [`GpuError::Helper`] if no answer comes in time; else the helper's refusal.
    pub(super) fn ask(&self, question: HelperRequest, limit: Duration) -> Result<Reply, GpuError> {
        let (sender, answer) = sync_channel(1);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.wait_for(id, sender)?;
        let result =
            self.send(&Request { id, question })
                .and_then(|()| match answer.recv_timeout(limit) {
                    Ok(result) => result,
                    Err(RecvTimeoutError::Timeout) => {
                        Err(self.broken(format!("does not answer within {limit:?}")))
                    }
                    Err(RecvTimeoutError::Disconnected) => Err(self.broken(self.why_over())),
                });
        lock(&self.waiting).asked.remove(&id);
        result
    }

    fn wait_for(
        &self,
        id: u64,
        sender: SyncSender<Result<Reply, GpuError>>,
    ) -> Result<(), GpuError> {
        let mut waiting = lock(&self.waiting);
        if let Some(why) = &waiting.closed_reason {
            return Err(self.broken(why.clone()));
        }
        // Pending requests must fit into the pipe of a helper that does not read, else the agent would hang
        // with it.
        if waiting.asked.len() >= GPU_QUESTIONS_MAX {
            let many = "has more than GPU_QUESTIONS_MAX requests to answer";
            return Err(self.broken(many.to_owned()));
        }
        waiting.asked.insert(id, sender);
        Ok(())
    }

    fn send(&self, request: &Request) -> Result<(), GpuError> {
        let failed = |error: std::io::Error| self.broken(format!("accepts no requests: {error}"));
        let mut line = serde_json::to_vec(request).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        let mut stdin = lock(&self.stdin);
        stdin.write_all(&line).map_err(failed)
    }

    fn why_over(&self) -> String {
        let why = lock(&self.waiting).closed_reason.clone();
        why.unwrap_or_else(|| "does not answer".to_owned())
    }

    fn broken(&self, what: String) -> GpuError {
        GpuError::Helper {
            pid: self.pid,
            what,
        }
    }
}

/// Passes answers to the waiting threads until no more come.
fn receive(stdout: ChildStdout, waiting: &Mutex<PendingRequests>) {
    let why = receive_answers(stdout, waiting);
    let mut waiting = lock(waiting);
    waiting.closed_reason = Some(why);
    // Dropping the senders wakes the waiting threads with an error.
    waiting.asked.clear();
}

fn receive_answers(stdout: ChildStdout, waiting: &Mutex<PendingRequests>) -> String {
    let mut lines = BufReader::new(stdout);
    loop {
        let line = match next_line(&mut lines, GPU_MESSAGE_BYTES_MAX) {
            Ok(Some(line)) => line,
            Ok(None) => return "has ended".to_owned(),
            Err(error) => return format!("cannot be read: {error}"),
        };
        let answer: Answer = match serde_json::from_slice(&line) {
            Ok(answer) => answer,
            Err(error) => return format!("sent an invalid answer: {error}"),
        };
        // A late answer has no receiver any more.
        if let Some(sender) = lock(waiting).asked.remove(&answer.id) {
            drop(sender.try_send(answer.result.map_err(GpuError::from)));
        }
    }
}

/// A line of the helper's log.
#[derive(Deserialize)]
struct Logged {
    level: String,
    fields: serde_json::Map<String, serde_json::Value>,
}

/// Repeats the helper's log in the agent's, with its levels. Other output comes from a library.
fn forward_log(stderr: ChildStderr, pid: u32) {
    let mut lines = BufReader::new(stderr);
    while let Ok(Some(line)) = next_line(&mut lines, GPU_HELPER_LOG_BYTES_MAX) {
        let Ok(Logged { level, mut fields }) = serde_json::from_slice(&line) else {
            let line = String::from_utf8_lossy(&line);
            tracing::warn!(helper = pid, "output of the GPU helper: {line}");
            continue;
        };
        let field = fields.remove("message").unwrap_or_default();
        let message = field.as_str().unwrap_or_default();
        let details = serde_json::Value::Object(fields);
        match level.as_str() {
            "ERROR" => tracing::error!(helper = pid, %details, "{message}"),
            "WARN" => tracing::warn!(helper = pid, %details, "{message}"),
            "INFO" => tracing::info!(helper = pid, %details, "{message}"),
            _ => tracing::debug!(helper = pid, %details, "{message}"),
        }
    }
}

/// The next line without its terminator; none at the end of the stream.
///
/// # Errors
/// Of the pipe, and `InvalidData` for a longer line.
pub(super) fn next_line(
    lines: &mut impl BufRead,
    bytes_max: u64,
) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    lines.take(bytes_max).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) => Err(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            format!("a line without an end, or of more than {bytes_max} bytes"),
        )),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
