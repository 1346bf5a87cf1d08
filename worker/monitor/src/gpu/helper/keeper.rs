//! Keeper of one helper process at a time: a helper that does not answer is killed, and replaced once it is
//! gone.
//!
//! A process that hangs in the kernel cannot be killed. Until it is gone no other one is started, because
//! that one would hang too: requests fail at once instead.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_model::ids::GpuUuid;
use muster_supervisor::lease::clock::LeaseClock;

use crate::gpu::GpuError;
use crate::gpu::helper::HelperProgram;
use crate::gpu::helper::link::Link;
use crate::gpu::helper::messages::{HelperRequest, Opened, Reply};
use crate::limits::GPU_HELPER_REAP_MAX;
use crate::metrics;

/// Interval of checks whether a killed helper is gone.
const REAP_INTERVAL: Duration = Duration::from_millis(5);
/// Name of the helper in process lists.
const NAME: &str = "muster";

/// Keeps the helper.
#[derive(Debug)]
pub(super) struct Keeper {
    program: HelperProgram,
    kept: Mutex<HelperState>,
}

/// The helper, and the state that its successor needs.
#[derive(Debug)]
struct HelperState {
    helper: Helper,
    /// The GPUs that the first helper found.
    expected: BTreeSet<GpuUuid>,
    /// The GPUs that the current helper did not find.
    missing: BTreeSet<GpuUuid>,
    /// Known counts of uncorrected ECC errors; those beyond them are new.
    ecc_counts: Vec<(GpuUuid, u64)>,
}

/// State of the helper process.
#[derive(Debug)]
enum Helper {
    /// No process.
    Gone,
    /// Answers, as far as is known.
    Answering(Child, Arc<Link>),
    /// Killed, but not gone yet.
    Leaving(Child),
}

impl Keeper {
    /// Starts the first helper.
    pub(super) fn open(program: HelperProgram) -> Result<(Self, Opened), GpuError> {
        let mut kept = HelperState {
            helper: Helper::Gone,
            expected: BTreeSet::new(),
            missing: BTreeSet::new(),
            ecc_counts: Vec::new(),
        };
        let (_, opened) = kept.start(&program)?;
        kept.expected = opened.gpus.iter().map(|gpu| gpu.uuid).collect();
        let keeper = Self {
            program,
            kept: Mutex::new(kept),
        };
        Ok((keeper, opened))
    }

    /// Asks the helper, or a new one if it is gone.
    pub(super) fn ask(&self, question: HelperRequest) -> Result<Reply, GpuError> {
        let link = self.link()?;
        let answered = link.ask(question, self.program.answer_max);
        if matches!(answered, Err(GpuError::Helper { .. })) {
            self.dismiss(&link);
        }
        answered
    }

    /// The link to a helper that answers as far as is known.
    fn link(&self) -> Result<Arc<Link>, GpuError> {
        let mut kept = self.kept();
        if let Helper::Answering(_, link) = &kept.helper
            && !link.is_over()
        {
            return Ok(Arc::clone(link));
        }
        let before = kept.dismiss();
        let (link, opened) = kept.start(&self.program)?;
        let found: BTreeSet<GpuUuid> = opened.gpus.iter().map(|gpu| gpu.uuid).collect();
        kept.missing = kept.expected.difference(&found).copied().collect();
        metrics::gpu_helper_replaced();
        tracing::warn!(
            before,
            helper = link.pid(),
            missing = kept.missing.len(),
            "started a new helper for the driver"
        );
        Ok(link)
    }

    /// Ends a helper that does not answer, unless another thread has done so.
    fn dismiss(&self, failed: &Arc<Link>) {
        let mut kept = self.kept();
        if matches!(&kept.helper, Helper::Answering(_, link) if Arc::ptr_eq(link, failed)) {
            kept.dismiss();
        }
    }

    /// Ends the helper, so that its successor looks for the GPUs again.
    pub(super) fn restart(&self) {
        self.kept().dismiss();
    }

    /// The GPUs of the first helper that this one did not find.
    pub(super) fn missing(&self) -> BTreeSet<GpuUuid> {
        self.kept().missing.clone()
    }

    pub(super) fn ecc_counts(&self) -> Vec<(GpuUuid, u64)> {
        self.kept().ecc_counts.clone()
    }

    pub(super) fn note_ecc_counts(&self, counts: Vec<(GpuUuid, u64)>) {
        self.kept().ecc_counts = counts;
    }

    pub(super) fn helper_pid(&self) -> Option<u32> {
        match &self.kept().helper {
            Helper::Answering(child, _) => Some(child.id()),
            Helper::Leaving(_) | Helper::Gone => None,
        }
    }

    fn kept(&self) -> MutexGuard<'_, HelperState> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HelperState {
    /// Starts a helper if the last one is gone, and has it open the GPUs.
    fn start(&mut self, program: &HelperProgram) -> Result<(Arc<Link>, Opened), GpuError> {
        if let Helper::Leaving(child) = &mut self.helper {
            if !is_gone(child) {
                return Err(GpuError::HelperHangs(child.id()));
            }
            self.helper = Helper::Gone;
        }
        let mut child = spawn(program).map_err(GpuError::HelperStart)?;
        let link = match Link::of(&mut child) {
            Ok(link) => Arc::new(link),
            Err(error) => {
                self.end(child);
                return Err(GpuError::HelperStart(error));
            }
        };
        self.helper = Helper::Answering(child, Arc::clone(&link));
        let question = HelperRequest::Open {
            ecc_counts: self.ecc_counts.clone(),
        };
        match link.ask(question, program.answer_max) {
            Ok(Reply::Opened(opened)) => {
                self.ecc_counts.clone_from(&opened.ecc_counts);
                Ok((link, opened))
            }
            Ok(other) => {
                self.dismiss();
                Err(super::unexpected_reply(other))
            }
            Err(error) => {
                self.dismiss();
                Err(error)
            }
        }
    }

    /// Ends the helper if one runs; returns its process id.
    fn dismiss(&mut self) -> Option<u32> {
        match std::mem::replace(&mut self.helper, Helper::Gone) {
            Helper::Answering(child, _) => Some(self.end(child)),
            other => {
                self.helper = other;
                None
            }
        }
    }

    /// Kills a process and waits a moment for it to be gone; returns its process id.
    fn end(&mut self, mut child: Child) -> u32 {
        let pid = child.id();
        if let Err(error) = child.kill() {
            tracing::warn!(helper = pid, %error, "a helper that does not answer cannot be killed");
        }
        let clock = LeaseClock::start();
        let until = clock.now().0 + u64::try_from(GPU_HELPER_REAP_MAX.as_millis()).unwrap_or(0);
        while !is_gone(&mut child) {
            if clock.now().0 >= until {
                tracing::error!(
                    helper = pid,
                    "a helper hangs in the kernel: the driver is not queried until it is gone"
                );
                self.helper = Helper::Leaving(child);
                break;
            }
            std::thread::park_timeout(REAP_INTERVAL);
        }
        pid
    }
}

impl Drop for HelperState {
    fn drop(&mut self) {
        self.dismiss();
    }
}

/// Starts the helper in a process group of its own: a signal from a terminal is the agent's to handle.
fn spawn(program: &HelperProgram) -> std::io::Result<Child> {
    Command::new(&program.program)
        .arg0(NAME)
        .args(&program.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
}

/// Whether a process has ended and is reaped. If unknown, it counts as gone.
fn is_gone(child: &mut Child) -> bool {
    match child.try_wait() {
        Ok(status) => status.is_some(),
        Err(error) => {
            tracing::warn!(helper = child.id(), %error, "the exit status of a helper is unknown");
            true
        }
    }
}
