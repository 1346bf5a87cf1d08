//! What this host sees of its own health, told to the leader as findings; and the repairs and checks that it is ordered.
//!
//! | part | what |
//! |---|---|
//! | `kernel_log` | a thread that reads the kernel's log |
//! | `sampler` | two threads that read GPUs and the host again and again |
//! | `host`, `adapters`, `processes` | what is read of the host |
//! | `checks` | the site's own checks |
//! | `board_log` | what the board itself wrote down |
//! | `driver_start` | a driver that does not start |
//! | `judge` | the one place where rules are held against what was seen; remembers what it told |
//! | `strangers` | which processes on GPUs are nobody's task |
//! | `signals` | what the GPU backend's words mean by the rules |
//! | `works` | repairs and checks that the leader orders |
//! | `notes` | what the next agent must know |
//! | `sources` | which metric of which rule comes from where |

mod adapters;
mod board_log;
mod checks;
mod config;
mod driver_start;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod faults;
mod host;
mod injected;
mod judge;
mod kernel_log;
mod mounts;
mod notes;
mod peers;
mod processes;
mod program;
pub(crate) mod rates;
mod rules;
mod sampler;
mod series;
mod services;
mod signals;
#[cfg(test)]
mod sources;
mod strangers;
mod works;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_health::checks::CheckResult;
use muster_health::kernel_log::{BusId, BusMap, Cursor, Event, Scanner, Trust};
use muster_health::rules::RuleSet;
use muster_model::command::{GpuDescription, GpuHealth};
use muster_model::health::{Component, Order};
use muster_model::ids::{GpuUuid, HostId, Revision};
use muster_model::time::MonotonicMs;
use muster_supervisor::clock::LeaseClock;
use muster_supervisor::files;
use muster_tls::Dialer;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::gpu::{GpuSensors, GpuUse, Injector, try_driver};
use crate::inbox::Outbox;
use crate::limits::{
    DRIVER_START_PAUSE, HEALTH_ORDERS_MAX, HEALTH_SEEN_MAX, INJECTIONS_WAITING_MAX,
};
use crate::replicas::KnownReplicas;
use crate::topology::PciAddress;

pub use config::{CheckDialect, Expected, HealthConfig, SiteCheck};
pub(crate) use host::loaded_driver;
pub(crate) use injected::Injected;
use judge::Judge;
use notes::Notes;
use rules::KnownRules;
use sampler::Sweep;
pub(crate) use signals::makes_unfit;

/// This host, before it knows by which number the cluster knows it: the number is put in when findings are sent.
pub(crate) const THIS_HOST: Component = Component::Host(HostId(0));

/// The rules of what the driver says would bring a GPU back, by the metric `action`: a reset, peers that must leave, a reboot.
pub(crate) const RECOVERY_RULES: [&str; 3] = [
    "gpu_recovery_action",
    "gpu_recovery_peers",
    "gpu_recovery_reboot",
];

/// The rule about power supplies that have GPUs slowed down: its hosts tell by the metric `braked`, the state sums racks up.
pub(crate) const POWER_BRAKE_RULE: &str = "power_brake";

/// What was seen.
#[derive(Debug)]
pub(crate) enum Seen {
    /// A line of the kernel's log that says something.
    Line {
        /// What it says.
        event: Event,
        /// Its text.
        text: String,
        /// Up to where the log was read then; none for a line that is injected.
        cursor: Option<Cursor>,
    },
    /// So many records were overwritten before they were read.
    Lost(u64),
    /// Metrics were read.
    Samples(Vec<Sample>),
    /// Metrics were read from words, which are the evidence.
    Said(Sample, String),
    /// The backend, or who holds it, makes a GPU look so.
    Gpu(GpuUuid, GpuHealth),
    /// The driver reported an XID of a GPU.
    Xid(GpuUuid, u32),
    /// It was reported a moment ago, and the kernel's log has had time to say more of it.
    LateXid(GpuUuid, u32),
    /// A check of the site came to its end.
    Checked(String, CheckResult),
    /// The state has heard all up to this number.
    Heard(u64),
    /// The rules of this revision are in force, and by this their file is known; 0 if nobody says.
    Rules(Revision, u64),
    /// These are the rules of a revision.
    Fetched(Revision, Box<KnownRules>),
    /// A component was repaired: what was read of it before says nothing.
    Repaired(Component),
}

/// What was read of a component for one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) rule: String,
    pub(crate) component: Component,
    pub(crate) metrics: Vec<(String, i64)>,
}

impl Sample {
    pub(crate) fn new(rule: &str, component: Component, metrics: &[(&str, i64)]) -> Self {
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

/// What the judge knows that speaks against parts of this host, for checks.
#[derive(Clone, Debug, Default)]
struct Against(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// When each GPU last had an XID that says that it does not work.
    xids: BTreeMap<GpuUuid, MonotonicMs>,
    /// The last XID of each GPU.
    codes: BTreeMap<GpuUuid, u32>,
    /// What does not work by a rule that a reading ends, as long as none does.
    ill: Vec<(String, Component)>,
    /// The rules in force.
    rules: Option<Arc<RuleSet>>,
}

impl Against {
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

    fn set_ill(&self, ill: Vec<(String, Component)>) {
        self.known().ill = ill;
    }

    /// The rule by which a component does not work now; of a host, or of a part of it.
    fn ill(&self, component: &Component) -> Option<String> {
        let is_its = |of: &Component| match component {
            Component::Host(_) => true,
            other => of == other,
        };
        let known = self.known();
        let found = known.ill.iter().find(|(_, of)| is_its(of));
        found.map(|(rule, _)| rule.clone())
    }
}

/// The GPUs of this host, as the watch over health needs them.
pub(crate) struct Gpus {
    pub(crate) described: Vec<GpuDescription>,
    pub(crate) addresses: BTreeMap<GpuUuid, PciAddress>,
    pub(crate) sensors: Box<dyn GpuSensors>,
    pub(crate) injector: Injector,
    pub(crate) is_simulated: bool,
    /// Where goes how busy they are.
    pub(crate) uses: GpuUse,
    /// Why none are offered where there should be some: the driver does not start.
    pub(crate) unopened: Option<String>,
}

impl Gpus {
    /// What of the host they, and tasks in containers, have need of.
    fn needs(&self, place: &Place) -> services::Needs {
        services::Needs {
            has_real_gpus: !self.is_simulated && !self.described.is_empty(),
            runs_containers: place.runs_containers,
        }
    }
}

/// Where the watch over health keeps what it must, and what it must know of the host.
pub(crate) struct Place {
    /// The host's name.
    pub(crate) host: String,
    pub(crate) data: PathBuf,
    pub(crate) boot_id: String,
    /// Whether the host has booted since the last agent ran.
    pub(crate) rebooted: bool,
    pub(crate) clock: LeaseClock,
    /// The scheduler's replicas.
    pub(crate) replicas: KnownReplicas,
    /// Opens connections to them.
    pub(crate) dialer: Dialer,
    /// Whether tasks in containers run here.
    pub(crate) runs_containers: bool,
}

/// The decision loop's way to the watch over this host's health.
pub(crate) struct HealthDesk {
    /// Where what was seen goes.
    pub(crate) seen: mpsc::Sender<Seen>,
    /// Where goes what is to be seen in a drill.
    pub(crate) injected: mpsc::Sender<Injected>,
    /// Where orders go.
    pub(crate) orders: mpsc::Sender<Order>,
    /// Where the health that GPUs show is kept.
    pub(crate) shown: watch::Sender<BTreeMap<GpuUuid, GpuHealth>>,
}

/// Starts to watch. Findings and ended work go to `outbox`.
pub(crate) fn start(
    config: &HealthConfig,
    place: Place,
    gpus: Gpus,
    outbox: Outbox,
    stop: &CancellationToken,
) -> HealthDesk {
    let path = place.data.join("health.json");
    let (seen, incoming) = mpsc::channel(HEALTH_SEEN_MAX);
    let (orders, ordered) = mpsc::channel(HEALTH_ORDERS_MAX);
    let (shown, looked_at) = watch::channel(BTreeMap::new());
    let notes = Notes::read(&path, &place.boot_id);
    let (writer, newest) = watch::channel(notes.clone());
    let buses = buses(&gpus.addresses);
    let injected = drills(config, buses.clone(), &seen);
    if let Some((log, trust)) = config.log() {
        let scanner = Scanner::new(trust, notes.cursor.clone(), buses.clone());
        let log = kernel_log::KernelLog::new(log, &place.boot_id, scanner, seen.clone());
        thread("kernel-log", move || log.run());
    }
    let sweep = Arc::new(Sweep::new(place.clock));
    let against = Against::default();
    let mut judge = Judge::new(
        (notes, writer),
        judge::Host {
            root: config.host_root.clone(),
            models: models_of(&gpus),
            buses,
            sweep: Arc::clone(&sweep),
        },
        (Arc::new(move || place.clock.now()), against.clone()),
        (outbox.clone(), seen.clone()),
        rules_of(&place),
    );
    if place.rebooted && !was_ordered(&place.data) {
        judge.rebooted();
    }
    tokio::spawn(judge.run(incoming));
    tokio::spawn(notes::write(path, newest));
    repeat_checks((config, gpus.needs(&place)), &place.data, &seen, stop);
    try_driver_again(gpus.unopened, &seen, stop);
    mounts::start(config, &seen);
    let worked_on = works::Gpus {
        described: gpus.described.clone(),
        is_simulated: gpus.is_simulated,
        injector: gpus.injector,
        shown: looked_at,
        against: against.clone(),
    };
    let works = works::Works::new(
        config.clone(),
        worked_on,
        (place.clock, reboot_mark(&place.data)),
        (seen.clone(), outbox),
    );
    tokio::spawn(works.run(ordered));
    sampler::start(
        config,
        (gpus.described, gpus.addresses, gpus.sensors, gpus.uses),
        &place,
        (sweep, against),
        &seen,
    );
    HealthDesk {
        seen,
        injected,
        orders,
        shown,
    }
}

fn models_of(gpus: &Gpus) -> BTreeMap<GpuUuid, String> {
    let described = gpus.described.iter();
    described.map(|gpu| (gpu.uuid, gpu.model.clone())).collect()
}

/// Shows what is injected in drills; returns where that goes.
fn drills(
    config: &HealthConfig,
    buses: BusMap,
    seen: &mpsc::Sender<Seen>,
) -> mpsc::Sender<Injected> {
    let (inject, injected) = mpsc::channel(INJECTIONS_WAITING_MAX);
    let scanner = Scanner::new(Trust::Kernel, Cursor::default(), buses);
    let period = Duration::from_millis(config.sample_ms);
    tokio::spawn(injected::show(injected, scanner, period, seen.clone()));
    inject
}

/// Where the rules come from.
fn rules_of(place: &Place) -> rules::RulesSource {
    rules::RulesSource::new(place.replicas.clone())
        .dialing(place.dialer.clone())
        .keeping(place.data.join("health-rules.toml"))
}

/// Tells that the driver does not start, if it did not, until it does.
fn try_driver_again(unopened: Option<String>, seen: &mpsc::Sender<Seen>, stop: &CancellationToken) {
    if let Some(why) = unopened {
        let tries = driver_start::repeat(why, try_driver, DRIVER_START_PAUSE, seen.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(tries));
    }
}

/// Runs the site's checks, and asks for services and the board's own log, again and again.
fn repeat_checks(
    (config, needs): (&HealthConfig, services::Needs),
    data: &Path,
    seen: &mpsc::Sender<Seen>,
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

/// Where the GPUs are, as the kernel's log names places.
fn buses(addresses: &BTreeMap<GpuUuid, PciAddress>) -> BusMap {
    let mut buses = BusMap::default();
    for (gpu, address) in addresses {
        if let Some(bus) = BusId::parse(&address.to_string()) {
            buses.learn(bus, *gpu);
        }
    }
    buses
}

/// Whether the last agent was ordered to reboot the host; asked once.
fn was_ordered(data: &Path) -> bool {
    let mark = reboot_mark(data);
    let is_marked = mark.exists();
    if is_marked && let Err(error) = std::fs::remove_file(&mark) {
        tracing::warn!(path = %mark.display(), %error, "the next reboot will be taken for an ordered one");
    }
    is_marked
}

/// The file that says that the host was ordered to boot.
fn reboot_mark(data: &Path) -> PathBuf {
    data.join("reboot-ordered")
}

/// Leaves the mark that the host was ordered to boot.
fn mark_reboot(mark: &Path) -> std::io::Result<()> {
    files::replace_durably(mark, b"")
}

/// A thread for what may block for ever. Without it the host is watched less, and works on.
fn thread(name: &str, run: impl FnOnce() + Send + 'static) {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    if let Err(error) = started {
        tracing::error!(name, %error, "a thread that watches this host's health cannot be started");
    }
}
