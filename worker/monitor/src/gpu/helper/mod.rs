//! GPU helper: a separate process that queries the driver, because driver calls can hang in the kernel,
//! where they cannot be interrupted.
//!
//! | part | purpose |
//! |---|---|
//! | [`HelpedBackend`] | the agent's side: a backend that asks a helper |
//! | `keeper` | starts the helper, and a new one once it is gone |
//! | `link` | the pipes to one helper, and the pending requests |
//! | `messages` | the messages on the pipes |
//! | `serve` | the helper's side: any backend behind pipes |

mod keeper;
mod link;
mod messages;
mod serve;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use keeper::Keeper;
use messages::{HelperRequest, Opened, Reply};
use muster_model::command::{GpuDescription, GpuHealth};
use muster_model::ids::GpuUuid;
use muster_model::time::MonotonicMs;
use muster_supervisor::DeviceNumber;

use crate::gpu::{
    GpuBackend, GpuError, GpuMemory, GpuReadings, GpuSensors, HealthChange, NvmlBackend, XidEvent,
    faulted,
};
use crate::limits::{GPU_ANSWER_MAX, INJECTIONS_WAITING_MAX};
use crate::topology::PciAddress;

/// Subcommand with which this program runs as a helper.
const ASK_GPUS: &str = "ask-gpus";
/// This program, even if its file was replaced meanwhile.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The helper program and its time limit.
#[derive(Clone, Debug)]
pub struct HelperProgram {
    /// Path of the program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Time limit of an answer.
    pub answer_max: Duration,
}

impl HelperProgram {
    /// This very program, whose main function must call [`run`] first.
    #[must_use]
    pub fn of_this_binary() -> Self {
        Self {
            program: THIS_PROGRAM.into(),
            arguments: vec![ASK_GPUS.into()],
            answer_max: GPU_ANSWER_MAX,
        }
    }
}

/// Runs the subcommand `ask-gpus`: answers requests on standard input about the GPUs of NVML on standard
/// output until the input is closed. None if `arguments` are not that subcommand. `log` starts logging on
/// standard error in JSON, which the agent reads.
pub fn run<E: Display>(
    arguments: &[OsString],
    log: impl FnOnce() -> Result<(), E>,
) -> Option<ExitCode> {
    match arguments {
        [argument] if argument == ASK_GPUS => Some(serve(log, |ecc_counts| {
            Ok(Box::new(NvmlBackend::open(&ecc_counts)?))
        })),
        _ => None,
    }
}

/// Answers requests about the GPUs of a backend, as [`run`] does for NVML. Uncorrected ECC errors beyond
/// the counts passed to `open` are new.
pub fn serve<E: Display>(
    log: impl FnOnce() -> Result<(), E>,
    open: impl FnOnce(BTreeMap<GpuUuid, u64>) -> Result<Box<dyn GpuBackend>, GpuError>,
) -> ExitCode {
    let started = log().map_err(|error| error.to_string());
    let served = started.and_then(|()| serve::serve(open).map_err(|error| error.to_string()));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing can be done if this fails.
            drop(writeln!(io::stderr(), "querying the GPUs failed: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// GPUs that are queried through a helper.
pub struct HelpedBackend {
    keeper: Arc<Keeper>,
    /// Properties at the time when the first helper opened the GPUs.
    opened: Opened,
    /// GPUs that a later helper did not find and that were reported.
    lost: BTreeSet<GpuUuid>,
    /// XIDs that helpers reported and the agent has not taken yet.
    xids: Vec<XidEvent>,
    /// An admin's orders that no helper has taken yet.
    orders: Vec<HealthChange>,
    ordered: Receiver<HealthChange>,
    injector: SyncSender<HealthChange>,
}

impl HelpedBackend {
    /// Starts a helper and has it open the GPUs.
    ///
    /// # Errors
    /// [`GpuError::NoDriver`] if there is no driver, [`GpuError::DriverDoesNotStart`] if it does not start;
    /// [`GpuError::HelperStart`] and [`GpuError::Helper`] if there is no helper or no answer; else the
    /// reason why the driver cannot count the GPUs.
    pub fn open(program: HelperProgram) -> Result<Self, GpuError> {
        let (keeper, opened) = Keeper::open(program)?;
        let (injector, ordered) = sync_channel(INJECTIONS_WAITING_MAX);
        Ok(Self {
            keeper: Arc::new(keeper),
            opened,
            lost: BTreeSet::new(),
            xids: Vec::new(),
            orders: Vec::new(),
            ordered,
            injector,
        })
    }

    /// Process id of the current helper; none if none runs.
    #[must_use]
    pub fn helper_pid(&self) -> Option<u32> {
        self.keeper.helper_pid()
    }

    /// Takes an admin's orders. A GPU that is declared repaired but was not found is looked for again by a
    /// new helper.
    fn take_orders(&mut self) {
        let first_new = self.orders.len();
        let room = INJECTIONS_WAITING_MAX.saturating_sub(first_new);
        self.orders.extend(self.ordered.try_iter().take(room));
        let repaired = self.orders[first_new..]
            .iter()
            .filter(|(_, health)| *health == GpuHealth::Healthy);
        let found_again: Vec<GpuUuid> = repaired
            .map(|(gpu, _)| *gpu)
            .filter(|gpu| self.lost.remove(gpu))
            .collect();
        if !found_again.is_empty() {
            self.keeper.restart();
        }
    }

    /// GPUs that a later helper does not find, each reported once.
    fn newly_lost(&mut self) -> Vec<HealthChange> {
        let missing = self.keeper.missing();
        let lost = &mut self.lost;
        let new = missing.into_iter().filter(|gpu| lost.insert(*gpu));
        new.map(|gpu| (gpu, faulted("gpu-lost", "no longer listed by the driver")))
            .collect()
    }
}

impl GpuBackend for HelpedBackend {
    fn inventory(&self) -> &[GpuDescription] {
        &self.opened.gpus
    }

    fn pci_addresses(&self) -> BTreeMap<GpuUuid, PciAddress> {
        let addresses = self.opened.pci_addresses.iter();
        let address = |(gpu, text): &(GpuUuid, String)| {
            let address = text.parse::<PciAddress>().inspect_err(
                |error| tracing::warn!(%gpu, %error, "the PCI address of a GPU is unknown"),
            );
            Some((*gpu, address.ok()?))
        };
        addresses.filter_map(address).collect()
    }

    fn device_numbers(&self) -> BTreeMap<GpuUuid, DeviceNumber> {
        self.opened.device_numbers.iter().copied().collect()
    }

    fn memory(&self) -> Arc<dyn GpuMemory> {
        Arc::new(HelpedMemory(Arc::clone(&self.keeper)))
    }

    fn sensors(&self) -> Box<dyn GpuSensors> {
        Box::new(HelpedSensors(Arc::clone(&self.keeper)))
    }

    fn observe(&mut self, wait: Duration) -> Result<Vec<HealthChange>, GpuError> {
        self.take_orders();
        let question = HelperRequest::Observe {
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            orders: self.orders.clone(),
        };
        let reply = self.keeper.ask(question)?;
        let Reply::Observed {
            mut changes,
            xids,
            ecc_counts,
        } = reply
        else {
            return Err(unexpected_reply(reply));
        };
        self.orders.clear();
        self.xids.extend(xids);
        self.keeper.note_ecc_counts(ecc_counts);
        changes.extend(self.newly_lost());
        Ok(changes)
    }

    fn injector(&self) -> SyncSender<HealthChange> {
        self.injector.clone()
    }

    fn take_xids(&mut self) -> Vec<XidEvent> {
        std::mem::take(&mut self.xids)
    }

    fn ecc_counts(&self) -> BTreeMap<GpuUuid, u64> {
        self.keeper.ecc_counts().into_iter().collect()
    }

    fn is_simulated(&self) -> bool {
        self.opened.is_simulated
    }
}

/// Memory as the helper's backend reports it.
struct HelpedMemory(Arc<Keeper>);

impl GpuMemory for HelpedMemory {
    fn used(&self, gpu: GpuUuid) -> Result<(u64, String), GpuError> {
        match self.0.ask(HelperRequest::Memory { gpu })? {
            Reply::Memory { used_mib, by } => Ok((used_mib, by)),
            other => Err(unexpected_reply(other)),
        }
    }
}

/// Sensors of the helper's backend.
struct HelpedSensors(Arc<Keeper>);

impl GpuSensors for HelpedSensors {
    fn read(&mut self, gpu: &GpuDescription, now: MonotonicMs) -> Result<GpuReadings, GpuError> {
        let gpu = gpu.clone();
        match self.0.ask(HelperRequest::Sensors { gpu, now })? {
            Reply::Sensors(readings) => Ok(readings),
            other => Err(unexpected_reply(other)),
        }
    }
}

/// An answer to another request.
fn unexpected_reply(reply: Reply) -> GpuError {
    GpuError::Refused(format!("answer to another request: {reply:?}"))
}
