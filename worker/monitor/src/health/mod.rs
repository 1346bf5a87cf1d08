//! Health monitoring of this host: findings for the leader, and the repairs and checks that the leader
//! orders.
//!
//! | part | purpose |
//! |---|---|
//! | `handle` | input from the agent's decision loop, which never waits |
//! | `kernel_log` | thread that reads the kernel's log |
//! | `sampling` | two threads that read GPUs and the host periodically |
//! | `mounts`, `services` | shared file systems and services of the host |
//! | `checks` | the site's own checks |
//! | `board_log` | event log of the board |
//! | `driver_start` | a driver that does not start |
//! | `evaluation` | the only place where observations are evaluated by the rules; records what it reported |
//! | `repairs` | repairs and checks ordered by the leader |
//! | `metric_sources` | the source of each metric of each rule |

mod board_log;
mod checks;
mod config;
mod driver_start;
mod evaluation;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod faults;
mod handle;
mod injected;
mod kernel_log;
#[cfg(test)]
mod metric_sources;
mod mounts;
mod program;
mod repairs;
mod sampling;
mod services;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_health::checks::CheckResult;
use muster_health::kernel_log::{BusId, BusMap, Cursor, Event, Scanner, TrustedWriters};
use muster_health::rules::RuleSet;
use muster_model::command::{GpuDescription, GpuHealth};
use muster_model::desired::CountedFindings;
use muster_model::health::{Component, Order};
use muster_model::ids::{GpuUuid, HostId, Revision};
use muster_model::time::MonotonicMs;
use muster_supervisor::files;
use muster_supervisor::lease::clock::LeaseClock;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::gpu::{GpuSensors, GpuUsage, Injector, try_driver};
use crate::limits::{
    DRIVER_START_PAUSE, HEALTH_OBSERVATIONS_MAX, HEALTH_ORDERS_MAX, INJECTIONS_WAITING_MAX,
};
use crate::replicas::ReplicaAccess;
use crate::reports::ReportSender;
use crate::topology::PciAddress;

pub use config::{CheckConvention, Expected, HealthConfig, SiteCheck};
use evaluation::RuleEvaluator;
use evaluation::notes::{self, Notes};
use evaluation::rules::{KnownRules, RulesSource};
pub(crate) use evaluation::signals::makes_unfit;
use handle::Channels;
pub use handle::HealthHandle;
use injected::Injected;
use sampling::Sweep;
pub use sampling::loaded_driver;

/// This host, before its id is known: the id is filled in when findings are sent.
pub const THIS_HOST: Component = Component::Host(HostId(0));

/// Rules for the driver's recommended recovery action, by the metric `action`: a reset, peers that must
/// leave, a reboot.
pub(crate) const RECOVERY_RULES: [&str; 3] = [
    "gpu_recovery_action",
    "gpu_recovery_peers",
    "gpu_recovery_reboot",
];

/// The rule for power supplies that slow GPUs down: hosts report the metric `braked`, the state sums it up
/// per rack.
pub(crate) const POWER_BRAKE_RULE: &str = "power_brake";

/// An observation.
#[derive(Debug)]
pub(crate) enum Observation {
    /// A relevant line of the kernel's log.
    Line {
        /// The parsed event.
        event: Event,
        /// The text of the line.
        text: String,
        /// Read position after this line; none for an injected line.
        cursor: Option<Cursor>,
    },
    /// Number of records overwritten before they were read.
    Lost(u64),
    /// Readings of metrics.
    Samples(Vec<Sample>),
    /// A reading parsed from a text, which is the evidence.
    SampleWithText(Sample, String),
    /// Health of a GPU, as reported by the backend or by the handover between tasks.
    Gpu(GpuUuid, GpuHealth),
    /// The driver reported an XID of a GPU.
    Xid(GpuUuid, u32),
    /// An XID reported a moment ago: the kernel's log has had time to add details.
    LateXid(GpuUuid, u32),
    /// Result of a site check.
    Checked(String, CheckResult),
    /// The leader has acknowledged all findings up to this sequence number.
    Acknowledged(u64),
    /// Findings that the cluster counts against this host.
    Counted(CountedFindings),
    /// The rules of this revision are in force; the fingerprint of their file, 0 if unknown.
    Rules(Revision, u64),
    /// Fetched rules of a revision.
    Fetched(Revision, Box<KnownRules>),
    /// A component was repaired: earlier readings of it are void.
    Repaired(Component),
}

/// Reading of a component for one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The rule.
    pub rule: String,
    /// The component.
    pub component: Component,
    /// Values of the rule's metrics, by name.
    pub metrics: Vec<(String, i64)>,
}

impl Sample {
    /// A reading with these metrics.
    #[must_use]
    pub fn new(rule: &str, component: Component, metrics: &[(&str, i64)]) -> Self {
        let metrics = metrics.iter();
        Self {
            rule: rule.to_owned(),
            component,
            metrics: metrics
                .map(|(name, value)| ((*name).to_owned(), *value))
                .collect(),
        }
    }
}

/// Known faults of parts of this host, for checks.
#[derive(Clone, Debug, Default)]
struct KnownFaults(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// Time of the last XID of each GPU that marks it as not working.
    xids: BTreeMap<GpuUuid, MonotonicMs>,
    /// The last XID of each GPU.
    codes: BTreeMap<GpuUuid, u32>,
    /// Fatal findings that only a reading can clear: rule and component.
    faulty: Vec<(String, Component)>,
    /// The rules in force.
    rules: Option<Arc<RuleSet>>,
}

impl KnownFaults {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_xid(&self, gpu: GpuUuid, now: MonotonicMs) {
        self.known().xids.insert(gpu, now);
    }

    fn xid_of(&self, gpu: GpuUuid) -> Option<MonotonicMs> {
        self.known().xids.get(&gpu).copied()
    }

    fn note_code(&self, gpu: GpuUuid, code: u32) {
        self.known().codes.insert(gpu, code);
    }

    /// The last XID of a GPU; 0 before the first.
    fn last_code(&self, gpu: GpuUuid) -> u32 {
        self.known().codes.get(&gpu).copied().unwrap_or_default()
    }

    fn set_rules(&self, rules: &RuleSet) {
        self.known().rules = Some(Arc::new(rules.clone()));
    }

    fn rules(&self) -> Option<Arc<RuleSet>> {
        self.known().rules.clone()
    }

    fn set_faulty(&self, faulty: Vec<(String, Component)>) {
        self.known().faulty = faulty;
    }

    /// The rule by which a component is faulty now; for a host, also a part of it.
    fn faulty_rule(&self, component: &Component) -> Option<String> {
        let is_its = |of: &Component| match component {
            Component::Host(_) => true,
            other => of == other,
        };
        let known = self.known();
        let found = known.faulty.iter().find(|(_, of)| is_its(of));
        found.map(|(rule, _)| rule.clone())
    }
}

/// The GPUs of this host, as the monitor needs them.
pub struct Gpus {
    /// Their descriptions, in index order.
    pub described: Vec<GpuDescription>,
    /// Their PCI addresses, as far as they are known.
    pub addresses: BTreeMap<GpuUuid, PciAddress>,
    /// Reads their sensors.
    pub sensors: Box<dyn GpuSensors>,
    /// Declares them repaired.
    pub injector: Injector,
    /// Whether they are simulated.
    pub is_simulated: bool,
    /// Records their utilization.
    pub uses: GpuUsage,
    /// Why no GPUs are offered although the host should have some: the driver does not start.
    pub unopened: Option<String>,
}

impl Gpus {
    /// Services of the host that GPUs and tasks in containers need.
    fn needs(&self, context: &MonitorContext) -> services::Needs {
        services::Needs {
            has_real_gpus: !self.is_simulated && !self.described.is_empty(),
            runs_containers: context.runs_containers,
        }
    }
}

/// Paths of the monitor and properties of the host.
pub struct MonitorContext {
    /// The host's name.
    pub host: String,
    /// The data directory, in which the monitor keeps its state.
    pub data: PathBuf,
    /// Id of the current boot.
    pub boot_id: String,
    /// Whether the host was rebooted since the last agent ran.
    pub rebooted: bool,
    /// The monotonic clock of the agent.
    pub clock: LeaseClock,
    /// Access to the scheduler's replicas.
    pub access: ReplicaAccess,
    /// Whether this host runs tasks in containers.
    pub runs_containers: bool,
}

/// Starts monitoring. Findings and results of repairs and checks go to `reports`.
pub fn start(
    config: &HealthConfig,
    context: MonitorContext,
    gpus: Gpus,
    reports: ReportSender,
    stop: &CancellationToken,
) -> HealthHandle {
    let (seen, observations) = mpsc::channel(HEALTH_OBSERVATIONS_MAX);
    let (shown, shown_now) = watch::channel(BTreeMap::new());
    let known_faults = KnownFaults::default();
    let sweep = Arc::new(Sweep::new(context.clock));
    let buses = buses(&gpus.addresses);

    // Evaluation of all observations.
    let path = context.data.join("health.json");
    let notes = Notes::read(&path, &context.boot_id);
    let cursor = notes.cursor.clone();
    let (writer, newest) = watch::channel(notes.clone());
    let mut evaluator = RuleEvaluator::new(
        notes,
        evaluation::Host {
            root: config.host_root.clone(),
            models: models_of(&gpus),
            buses: buses.clone(),
            sweep: Arc::clone(&sweep),
        },
        rules_of(&context),
        evaluation::Links {
            clock: Arc::new(move || context.clock.now()),
            known_faults: known_faults.clone(),
            writer,
            reports: reports.clone(),
            seen: seen.clone(),
        },
    );
    if context.rebooted && !was_ordered(&context.data) {
        evaluator.rebooted();
    }
    tokio::spawn(evaluator.run(observations));
    tokio::spawn(notes::write(path, newest));

    // Sources of observations.
    read_kernel_log(config, &context.boot_id, cursor, buses.clone(), &seen);
    let injected = start_injection(config, buses, &seen);
    repeat_checks(config, gpus.needs(&context), &context.data, &seen, stop);
    try_driver_again(gpus.unopened, &seen, stop);
    mounts::start(config, &seen);
    let read = sampling::Gpus {
        described: gpus.described.clone(),
        addresses: gpus.addresses,
        sensors: gpus.sensors,
        uses: gpus.uses,
    };
    sampling::start(config, &context, read, sweep, known_faults.clone(), &seen);

    // Repairs and checks.
    let worked_on = repairs::Gpus {
        described: gpus.described,
        is_simulated: gpus.is_simulated,
        injector: gpus.injector,
        shown: shown_now,
        known_faults,
    };
    let orders = execute_orders(config, &context, worked_on, &seen, reports);
    HealthHandle::new(Channels {
        seen,
        injected,
        orders,
        shown,
    })
}

/// Starts the executor of the leader's orders; returns its channel.
fn execute_orders(
    config: &HealthConfig,
    context: &MonitorContext,
    gpus: repairs::Gpus,
    seen: &mpsc::Sender<Observation>,
    reports: ReportSender,
) -> mpsc::Sender<Order> {
    let (orders, ordered) = mpsc::channel(HEALTH_ORDERS_MAX);
    let executor = repairs::RepairExecutor::new(
        config.clone(),
        gpus,
        context.clock,
        reboot_mark(&context.data),
        seen.clone(),
        reports,
    );
    tokio::spawn(executor.run(ordered));
    orders
}

/// Starts the thread that reads the kernel's log from the last read position on, if configured.
fn read_kernel_log(
    config: &HealthConfig,
    boot_id: &str,
    cursor: Cursor,
    buses: BusMap,
    seen: &mpsc::Sender<Observation>,
) {
    if let Some((path, trust)) = config.log() {
        let scanner = Scanner::new(trust, cursor, buses);
        let log = kernel_log::KernelLog::new(path, boot_id, scanner, seen.clone());
        thread("kernel-log", move || log.run());
    }
}

fn models_of(gpus: &Gpus) -> BTreeMap<GpuUuid, String> {
    let described = gpus.described.iter();
    described.map(|gpu| (gpu.uuid, gpu.model.clone())).collect()
}

/// Starts the task that injects faults in drills; returns its channel.
fn start_injection(
    config: &HealthConfig,
    buses: BusMap,
    seen: &mpsc::Sender<Observation>,
) -> mpsc::Sender<Injected> {
    let (inject, injected) = mpsc::channel(INJECTIONS_WAITING_MAX);
    let scanner = Scanner::new(TrustedWriters::Kernel, Cursor::default(), buses);
    let period = Duration::from_millis(config.sample_ms);
    tokio::spawn(injected::show(injected, scanner, period, seen.clone()));
    inject
}

/// The source of the rules.
fn rules_of(context: &MonitorContext) -> RulesSource {
    RulesSource::new(context.access.replicas.clone())
        .dialing(context.access.dialer.clone())
        .keeping(context.data.join("health-rules.toml"))
}

/// If the driver did not start, reports that and retries until it does.
fn try_driver_again(
    unopened: Option<String>,
    seen: &mpsc::Sender<Observation>,
    stop: &CancellationToken,
) {
    if let Some(why) = unopened {
        let tries = driver_start::repeat(why, try_driver, DRIVER_START_PAUSE, seen.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(tries));
    }
}

/// Runs the site's checks and polls services and the board's event log periodically.
fn repeat_checks(
    config: &HealthConfig,
    needs: services::Needs,
    data: &Path,
    seen: &mpsc::Sender<Observation>,
    stop: &CancellationToken,
) {
    let board = board_log::repeat(config.clone(), data.to_owned(), seen.clone());
    tokio::spawn(stop.clone().run_until_cancelled_owned(board));
    let services = services::repeat(config.clone(), needs, seen.clone());
    tokio::spawn(stop.clone().run_until_cancelled_owned(services));
    for check in config.checks.clone() {
        let repeated = checks::repeat(check, seen.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(repeated));
    }
}

/// PCI addresses of the GPUs in the format of the kernel's log.
fn buses(addresses: &BTreeMap<GpuUuid, PciAddress>) -> BusMap {
    let mut buses = BusMap::default();
    for (gpu, address) in addresses {
        if let Some(bus) = BusId::parse(&address.to_string()) {
            buses.learn(bus, *gpu);
        }
    }
    buses
}

/// Whether the last agent was ordered to reboot the host; resets the mark.
fn was_ordered(data: &Path) -> bool {
    let mark = reboot_mark(data);
    let is_marked = mark.exists();
    if is_marked && let Err(error) = std::fs::remove_file(&mark) {
        tracing::warn!(path = %mark.display(), %error,
            "removing the reboot mark failed: the next reboot will count as ordered");
    }
    is_marked
}

/// File that marks an ordered reboot.
fn reboot_mark(data: &Path) -> PathBuf {
    data.join("reboot-ordered")
}

/// Writes the mark of an ordered reboot.
fn mark_reboot(mark: &Path) -> std::io::Result<()> {
    files::replace_durably(mark, b"")
}

/// Starts a thread for calls that may block forever. If that fails, the agent continues with less
/// monitoring.
fn thread(name: &str, run: impl FnOnce() + Send + 'static) {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    if let Err(error) = started {
        tracing::error!(name, %error, "a thread for health monitoring cannot be started");
    }
}
