//! A cluster in virtual time whose hosts evaluate the real health rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::executor::block_on;
use muster_engine::apply::Applied;
use muster_harness::{self as testing, LedCluster, reports};
use muster_health::checks::{CheckEnd, Dialect, read};
use muster_health::kernel_log::{BusId, BusMap, Cursor, Scanner, TrustedWriters};
use muster_health::rules::RuleSet;
use muster_model::command::{
    Block, BlockTarget, CheckpointCommand, CheckpointCommit, Command, ConfigCommand, Exit,
    GpuHealth, HealthCommand, HostCommand, HostRegistration, SignalSender, TaskOutcome,
};
use muster_model::health::{Component, Finding};
use muster_model::host::DRIVER_LABEL;
use muster_model::ids::{GpuUuid, HostId, JobId, Revision, UnitIndex};
use muster_model::spec::JobSpec;
use muster_model::time::{MonotonicMs, TimeMs};
use muster_model::timings::Timings;
use muster_model::topology::{CellPlace, Topology};
use muster_supervisor::lease::clock::LeaseClock;
use tokio::sync::{mpsc, watch};

use crate::gpu::faulted;
use crate::health::evaluation::notes::Notes;
use crate::health::evaluation::rules::{KnownRules, RulesSource};
use crate::health::evaluation::{Host, Links, RuleEvaluator};
use crate::health::faults::{Result, show};
use crate::health::sampling::Sweep;
use crate::health::{KnownFaults, Observation, Sample, THIS_HOST, makes_unfit};
use crate::replicas::KnownReplicas;
use crate::reports::{MonitorReport, report_channel};

/// Priority and facility of a kernel log record: written by the kernel, or by a process.
pub(super) const KERNEL: u32 = 3;
pub(super) const USER: u32 = 12;
/// Interval between readings of the same metric.
const POLL_MS: u64 = 30_000;
/// Retries of each job of a storm.
const STORM_RETRIES: u32 = 2;
/// Polls until a storm must be over, half a minute apart.
const STORM_LOOKS_MAX: u32 = 100;
/// One of this many tasks on a lemon node fails.
const LEMON_FAILS_EVERY: u32 = 4;
const SEGMENTATION_FAULT: i32 = 11;
/// Duration of a round of tasks on all hosts: longer than the window that counts as one failure.
const ROUND_MS: u64 = 90_000;
/// The PCI bus of a host's first GPU.
const FIRST_BUS: u8 = 0x10;

/// Exit of a task.
pub(super) struct End {
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) evidence: String,
    pub(super) oom: bool,
    pub(super) by_kernel: bool,
}

/// Health monitoring of one host.
struct SimulatedMonitor {
    evaluator: RuleEvaluator,
    incoming: mpsc::Receiver<MonitorReport>,
    scanner: Scanner,
    records: u64,
    sequence: u64,
    unacknowledged: Vec<Finding>,
    sends_heartbeats: bool,
    heartbeats: u64,
    registration: HostRegistration,
    _written: watch::Receiver<Notes>,
    _seen: mpsc::Receiver<Observation>,
}

pub(super) struct World {
    /// The cluster with its leader; its workers know no rules.
    pub(super) led: LedCluster,
    /// The virtual time for the rules.
    clock: Arc<AtomicU64>,
    hosts: BTreeMap<HostId, SimulatedMonitor>,
    jobs: BTreeMap<String, JobId>,
    /// Cells of the hosts.
    places: Vec<CellPlace>,
    readings: BTreeMap<(HostId, String, Component), Vec<(String, i64)>>,
    next_heartbeat: TimeMs,
    next_poll: TimeMs,
    injected: TimeMs,
    /// Events up to this revision have been recorded.
    recorded: Revision,
    /// Events since the last injection: delay in milliseconds and text.
    happened: Vec<(u64, String)>,
    /// Number of events already printed.
    shown: usize,
}

impl World {
    pub(super) fn new() -> Self {
        let led = LedCluster::new();
        let began = led.cluster.now;
        Self {
            clock: Arc::default(),
            hosts: BTreeMap::new(),
            jobs: BTreeMap::new(),
            places: Vec::new(),
            readings: BTreeMap::new(),
            next_heartbeat: began,
            next_poll: began.after(POLL_MS),
            injected: began,
            recorded: led.cluster.state.revision,
            led,
            happened: Vec::new(),
            shown: 0,
        }
    }

    /// Restarts the delays at zero; injections at the same instant belong together.
    pub(super) fn inject(&mut self) {
        if self.led.cluster.now > self.injected {
            self.injected = self.led.cluster.now;
            self.happened.clear();
            self.shown = 0;
        }
    }

    pub(super) fn take_lines(&mut self) -> String {
        let mut text = String::new();
        for (after_ms, line) in &self.happened[self.shown..] {
            let _ = writeln!(text, "+{} {line}", format_duration(*after_ms));
        }
        self.shown = self.happened.len();
        text
    }

    pub(super) fn require_within(&self, span_ms: u64, part: &str) -> Result<()> {
        let mut found = self.happened.iter().filter(|(_, line)| line.contains(part));
        match found.next() {
            Some((after_ms, _)) if *after_ms <= span_ms => Ok(()),
            Some((after_ms, line)) => {
                Err(format!("after {after_ms} ms, not {span_ms}: {line}").into())
            }
            None => Err(format!("no event contains `{part}`").into()),
        }
    }

    pub(super) fn require_at_most(&self, times: usize, part: &str) -> Result<()> {
        let mut found = self.happened.iter().filter(|(_, line)| line.contains(part));
        match found.nth(times) {
            Some((_, line)) => Err(format!("more than {times} times: {line}").into()),
            None => Ok(()),
        }
    }

    pub(super) fn health(&self) -> String {
        let state = &self.led.cluster.state;
        let mut text = String::new();
        for (component, condition) in state.health.conditions() {
            let strikes = condition.strikes_at(state.time);
            let of = show::component(component);
            let _ = writeln!(text, "{of}: {}, {strikes} strikes", condition.phase);
        }
        text
    }

    // Inputs of the scripts.

    pub(super) fn add_hosts(
        &mut self,
        count: u32,
        gpus: u32,
        (within, driver): (Option<&str>, Option<&str>),
    ) -> Result<()> {
        let first = u32::try_from(self.hosts.len()).unwrap() + 1;
        let new: Vec<HostRegistration> = (first..first + count)
            .map(|number| testing::host(number, gpus))
            .collect();
        if let Some(cell) = within {
            let cell: Vec<String> = cell.split('/').map(str::to_owned).collect();
            let names = new.iter().map(|host| host.name.clone());
            match self.places.iter_mut().find(|place| place.cell == cell) {
                Some(place) => place.hosts.extend(names),
                None => self.places.push(CellPlace {
                    cell,
                    hosts: names.collect(),
                }),
            }
            self.lay_out()?;
        }
        for (number, mut registration) in (first..).zip(new) {
            let driver = driver.map(|driver| (DRIVER_LABEL.to_owned(), driver.to_owned()));
            registration.labels.extend(driver);
            self.apply(&Command::Host(HostCommand::RegisterHost {
                leader: self.led.cluster.leader(),
                registration: Arc::new(registration.clone()),
            }));
            let watcher = self.watcher(registration);
            self.hosts.insert(HostId(number), watcher);
        }
        Ok(())
    }

    /// Sets the cells of the hosts: racks, or racks of pods.
    fn lay_out(&mut self) -> Result<()> {
        let depth = self.places.first().map_or(0, |place| place.cell.len());
        let levels = ["pod", "rack"];
        let above = levels.iter().skip(levels.len() - depth);
        let command = Command::Config(ConfigCommand::SetTopology {
            request: self.led.cluster.next_request(),
            author: "grace".to_owned(),
            topology: Arc::new(Topology {
                above: above.map(|level| (*level).to_owned()).collect(),
                places: self.places.clone(),
                ..Topology::default()
            }),
        });
        self.require(&command)
    }

    fn watcher(&self, registration: HostRegistration) -> SimulatedMonitor {
        let (reports, incoming) = report_channel();
        let (writer, written) = watch::channel(Notes::default());
        let (seen, kept) = mpsc::channel(8);
        let mut buses = BusMap::default();
        for gpu in &registration.gpus {
            let bus = BusId {
                domain: 0,
                bus: FIRST_BUS + u8::try_from(gpu.index).unwrap(),
                device: 0,
            };
            buses.learn(bus, gpu.uuid);
        }
        let clock = Arc::clone(&self.clock);
        let host = Host {
            root: PathBuf::from("/nonexistent"),
            models: { registration.gpus.iter() }
                .map(|gpu| (gpu.uuid, gpu.model.clone()))
                .collect(),
            buses: buses.clone(),
            sweep: Arc::new(Sweep::new(LeaseClock::start())),
        };
        let evaluator = RuleEvaluator::new(
            Notes::default(),
            host,
            RulesSource::new(KnownReplicas::configured(Vec::new())),
            Links {
                clock: Arc::new(move || MonotonicMs(clock.load(Ordering::Relaxed))),
                known_faults: KnownFaults::default(),
                writer,
                reports,
                seen,
            },
        );
        SimulatedMonitor {
            evaluator,
            incoming,
            scanner: Scanner::new(TrustedWriters::Kernel, Cursor::default(), buses),
            records: 0,
            sequence: 0,
            unacknowledged: Vec::new(),
            sends_heartbeats: true,
            heartbeats: 0,
            registration,
            _written: written,
            _seen: kept,
        }
    }

    pub(super) fn submit(&mut self, name: &str, change: impl FnOnce(&mut JobSpec)) {
        let mut spec = testing::single(name, 1, 1);
        change(&mut spec);
        if spec.gang {
            spec.partition_grace_ms = testing::gang(name, 1, 1).partition_grace_ms;
        }
        let job = self.led.cluster.submit(spec);
        self.jobs.insert(name.to_owned(), job);
    }

    pub(super) fn log(&mut self, host: u32, facility: u32, text: &str) -> Result<()> {
        let watcher = self.watcher_of(HostId(host))?;
        watcher.records += 1;
        let record = format!(
            "{facility},{},{},-;{text}",
            watcher.records, watcher.records
        );
        let scanned = watcher.scanner.read("boot", &record)?;
        if let Some(event) = scanned.event {
            watcher.see(Observation::Line {
                event,
                text: scanned.text,
                cursor: None,
            });
        }
        Ok(())
    }

    pub(super) fn read(
        &mut self,
        place: &str,
        rule: &str,
        values: &BTreeMap<String, i64>,
        lasts: bool,
    ) -> Result<()> {
        let (host, component) = self.place(place)?;
        let metrics: Vec<(String, i64)> = values.clone().into_iter().collect();
        let sample = Sample {
            rule: rule.to_owned(),
            component: component.clone(),
            metrics: metrics.clone(),
        };
        self.watcher_of(host)?
            .see(Observation::Samples(vec![sample]));
        if lasts {
            self.readings
                .insert((host, rule.to_owned(), component), metrics);
        }
        Ok(())
    }

    pub(super) fn signal(&mut self, place: &str, name: &str) -> Result<()> {
        let (host, component) = self.place(place)?;
        let Component::Gpu(gpu) = component else {
            return Err("signals need a GPU".into());
        };
        let health = match name {
            "healthy" => GpuHealth::Healthy,
            name => faulted(name, ""),
        };
        self.watcher_of(host)?
            .see(Observation::Gpu(gpu, health.clone()));
        // Earlier findings are applied first.
        self.apply_findings();
        let is_rules = matches!(&health, GpuHealth::Faulted { signal, .. } if !makes_unfit(signal));
        let health = if is_rules { GpuHealth::Healthy } else { health };
        self.apply(&Command::Host(HostCommand::SetGpuHealth {
            leader: self.led.cluster.leader(),
            host,
            gpu,
            health,
        }));
        Ok(())
    }

    /// Sets the default rules, some of them in observe mode.
    pub(super) fn observe(&mut self, observed: &[String]) -> Result<()> {
        let mut text = String::new();
        let mut is_observed = false;
        for line in RuleSet::SHIPPED_TEXT.lines() {
            if let Some(rule) = line.strip_prefix('[') {
                is_observed = observed.iter().any(|it| rule == format!("{it}]"));
            }
            match line {
                "mode = \"enforce\"" if is_observed => text.push_str("mode = \"observe\""),
                line => text.push_str(line),
            }
            text.push('\n');
        }
        let request = self.led.cluster.next_request();
        self.require(&Command::Health(HealthCommand::SetRules {
            request,
            author: "grace".to_owned(),
            text: text.as_str().into(),
            shipped: None,
        }))?;
        let revision = self.led.cluster.state.health_rules.revision;
        for watcher in self.hosts.values_mut() {
            let rules = KnownRules::of(&text)?;
            watcher.see(Observation::Fetched(revision, Box::new(rules)));
        }
        Ok(())
    }

    pub(super) fn check(&mut self, host: u32, name: &str, code: i32) -> Result<()> {
        let result = read(Dialect::Nagios, CheckEnd::Exited(code), "said so");
        let watcher = self.watcher_of(HostId(host))?;
        watcher.see(Observation::Checked(name.to_owned(), result));
        Ok(())
    }

    pub(super) fn exit(&mut self, job: &str, task: u32, end: End) -> Result<()> {
        let job = *self.jobs.get(job).ok_or("no such job")?;
        let exit = Exit {
            code: end.code,
            signal: end.signal,
            evidence: end.evidence,
            out_of_memory: end.oom,
            sender: end.by_kernel.then_some(SignalSender::Kernel),
            ..testing::exit_with(0)
        };
        self.led.cluster.exit(job, task, exit);
        self.record_events();
        Ok(())
    }

    /// `count` jobs of a user, each of which fails at once without a message on every host, until none has
    /// a retry left. Returns their course.
    pub(super) fn storm(&mut self, count: u32, user: &str) -> Result<String> {
        for number in 0..count {
            self.submit(&format!("storm{number}"), |spec| {
                spec.groups[0].resources.gpus = 1;
                spec.retry.retries_max = STORM_RETRIES;
                spec.user = user.to_owned();
            });
        }
        let jobs: Vec<JobId> = self
            .jobs
            .iter()
            .filter(|(name, _)| name.starts_with("storm"))
            .map(|(_, job)| *job)
            .collect();
        let mut waits = BTreeSet::new();
        let mut attempts = 0;
        for _ in 0..STORM_LOOKS_MAX {
            self.settle();
            for job in &jobs {
                if self.led.cluster.attempt(*job, UnitIndex(0)).is_none() {
                    continue;
                }
                self.led.cluster.exit(*job, 0, testing::exit_with(1));
                self.record_events();
                attempts += 1;
                let unit =
                    { self.led.cluster.state.job(*job) }.and_then(|job| job.unit(UnitIndex(0)));
                let waits_until = unit.map_or(self.led.cluster.now, |unit| unit.not_before);
                let wait_ms = waits_until.since(self.led.cluster.now);
                waits.extend((wait_ms > 0).then_some(wait_ms));
            }
            let is_over = |job: &JobId| {
                let job = self.led.cluster.state.job(*job);
                job.is_none_or(|job| job.phase.is_terminal())
            };
            if jobs.iter().all(is_over) {
                break;
            }
            self.wait(POLL_MS);
        }
        let count_of = |part: &str| {
            let lines = self.happened.iter();
            lines.filter(|(_, line)| line.contains(part)).count()
        };
        let waits: Vec<String> = waits.into_iter().map(format_duration).collect();
        let mut text = format!("{} jobs failed {attempts} times\n", jobs.len());
        let _ = writeln!(text, "waits between: {}", waits.join(", "));
        for part in ["blocked(auto) by", "refused", "breaker"] {
            let _ = writeln!(text, "{part}: {} times", count_of(part));
        }
        self.shown = self.happened.len();
        Ok(text)
    }

    /// See `Command::Lemon`.
    pub(super) fn lemon(&mut self, host: u32, starts_max: u32) -> Result<String> {
        let lemon = HostId(host);
        let all = u32::try_from(self.hosts.len())?;
        let mut starts = 0;
        for round in 0..starts_max {
            let names: Vec<String> = (0..all).map(|task| format!("{round}.{task}")).collect();
            for name in &names {
                self.submit(name, |spec| {
                    spec.groups[0].resources.gpus = 0;
                    spec.groups[0].resources.cpus_milli = testing::host(1, 1).cpus_milli;
                    spec.retry.retries_max = 0;
                });
            }
            self.settle();
            for name in &names {
                let job = self.jobs[name];
                let attempt = self.led.cluster.attempt(job, UnitIndex(0));
                let on = attempt.and_then(|attempt| Some(attempt.tasks.first()?.host));
                let is_lemons = on == Some(lemon);
                starts += u32::from(is_lemons);
                let exit = if is_lemons && starts.is_multiple_of(LEMON_FAILS_EVERY) {
                    Exit {
                        code: None,
                        signal: Some(SEGMENTATION_FAULT),
                        ..testing::exit_with(0)
                    }
                } else {
                    testing::exit_with(0)
                };
                if on.is_some() {
                    self.led.cluster.exit(job, 0, exit);
                    self.record_events();
                }
            }
            self.wait(ROUND_MS);
            let works =
                { self.led.cluster.state.host(lemon) }.is_some_and(|host| host.accepts_work());
            if !works {
                break;
            }
        }
        let blocked = |of: HostId| {
            self.led
                .cluster
                .state
                .host(of)
                .is_some_and(|it| it.block.is_some())
        };
        let others = self
            .hosts
            .keys()
            .filter(|of| **of != lemon && blocked(**of));
        let text = format!(
            "out of placement after {starts} starts, with {} others\n",
            others.count()
        );
        self.shown = self.happened.len();
        Ok(text)
    }

    pub(super) fn save(&mut self, name: &str) -> Result<()> {
        let job = *self.jobs.get(name).ok_or("no such job")?;
        let attempt = self
            .led
            .cluster
            .attempt(job, UnitIndex(0))
            .ok_or("it does not run")?;
        let now_ms = self.led.uptime().0;
        let checkpoint = CheckpointCommit {
            epoch: attempt.epoch,
            step: now_ms / 1_000,
            path: format!("/checkpoints/step_{now_ms}"),
            size_bytes: 0,
            digest: String::new(),
            save_ms: None,
        };
        self.apply(&Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
            leader: self.led.cluster.leader(),
            job,
            unit: UnitIndex(0),
            checkpoint,
        }));
        Ok(())
    }

    pub(super) fn set_heartbeats(&mut self, hosts: &[u32], is_beating: bool) {
        for (_, watcher) in self
            .hosts
            .iter_mut()
            .filter(|(id, _)| hosts.contains(&id.0))
        {
            watcher.sends_heartbeats = is_beating;
        }
        if is_beating {
            self.heartbeat();
        }
    }

    /// Reboots the host; its tasks are gone.
    pub(super) fn boot(&mut self, host: u32) -> Result<()> {
        let id = HostId(host);
        let watcher = self.watcher_of(id)?;
        let mut registration = watcher.registration.clone();
        registration.incarnation += 1;
        registration.boot_id.push('+');
        watcher.registration = registration.clone();
        watcher.sequence = 0;
        watcher.sends_heartbeats = true;
        self.apply(&Command::Host(HostCommand::RegisterHost {
            leader: self.led.cluster.leader(),
            registration: Arc::new(registration),
        }));
        self.heartbeat();
        let gone = reports::of_host(&self.led.cluster.state, id, |_, _| {
            Some(TaskOutcome::Gone {
                detail: "the host has booted".to_owned(),
            })
        });
        for report in gone {
            self.apply(&report);
        }
        Ok(())
    }

    pub(super) fn block(&mut self, place: &str) -> Result<()> {
        let target = self.target(place)?;
        let command = Command::Block {
            request: self.led.cluster.next_request(),
            target,
            block: Block {
                reason: "by hand".to_owned(),
                author: "grace".to_owned(),
                evidence: String::new(),
                since: self.led.cluster.now,
                expires_at: None,
                drain_deadline: None,
                planned: None,
            },
            spares_last: false,
        };
        self.require(&command)
    }

    pub(super) fn unblock(&mut self, place: &str) -> Result<()> {
        let target = self.target(place)?;
        let command = Command::Unblock {
            request: self.led.cluster.next_request(),
            target,
            author: "grace".to_owned(),
            planned: false,
        };
        self.require(&command)
    }

    /// A new leader, which starts with the replicated heartbeat times (ADR 0002).
    pub(super) fn change_leader(&mut self) {
        self.led.replace_leader();
        self.heartbeat();
    }

    pub(super) fn wait(&mut self, span_ms: u64) {
        let end = self.led.cluster.now.after(span_ms);
        while self.led.cluster.now < end {
            let dates = [self.next_heartbeat, self.next_poll, end].into_iter();
            let dates = dates.chain(self.led.next_at());
            let soonest = self.led.cluster.now.after(1);
            let next = dates
                .map(|at| at.max(soonest))
                .min()
                .unwrap_or(end)
                .min(end);
            self.led.cluster.wait(next.since(self.led.cluster.now));
            self.clock.store(self.led.uptime().0, Ordering::Relaxed);
            self.process_due();
            self.settle();
        }
    }

    // Consequences of the inputs.

    /// Processes what is due: heartbeats, readings, ends of repairs and checks.
    fn process_due(&mut self) {
        let now = self.led.cluster.now;
        if now >= self.next_heartbeat {
            self.heartbeat();
        }
        if now >= self.next_poll {
            self.next_poll = now.after(POLL_MS);
            for ((host, rule, component), metrics) in &self.readings {
                let sample = Sample {
                    rule: rule.clone(),
                    component: component.clone(),
                    metrics: metrics.clone(),
                };
                if let Some(watcher) = self.hosts.get_mut(host) {
                    watcher.see(Observation::Samples(vec![sample]));
                }
            }
        }
        self.led.end_works();
        self.record_events();
    }

    fn heartbeat(&mut self) {
        self.next_heartbeat = self.led.cluster.now.after(Timings::default().heartbeat_ms);
        let beating: Vec<HostId> = { self.hosts.iter_mut() }
            .filter(|(_, watcher)| watcher.sends_heartbeats)
            .map(|(id, watcher)| {
                watcher.evaluator.tick();
                watcher.heartbeats += 1;
                *id
            })
            .collect();
        for host in beating {
            let sequence = self
                .hosts
                .get(&host)
                .map_or(0, |watcher| watcher.heartbeats);
            self.led.heartbeat(host, sequence);
        }
        self.record_events();
    }

    /// Runs all consequences at this instant.
    pub(super) fn settle(&mut self) {
        loop {
            let before = self.led.cluster.state.revision;
            self.apply_findings();
            self.led.lead();
            let beating = self.hosts.iter().filter(|(_, host)| host.sends_heartbeats);
            self.led.run_tasks(beating.clone().map(|(id, _)| *id));
            for (host, watcher) in beating {
                let gpus = watcher.registration.gpus.iter().map(|gpu| gpu.uuid);
                self.led.take_orders(*host, gpus);
            }
            self.record_events();
            if self.led.cluster.state.revision == before {
                return;
            }
        }
    }

    /// Applies the findings to the state.
    fn apply_findings(&mut self) {
        let hosts: Vec<HostId> = self.hosts.keys().copied().collect();
        for host in hosts {
            let Some(watcher) = self.hosts.get_mut(&host) else {
                continue;
            };
            watcher.collect_findings(host);
            let findings = std::mem::take(&mut watcher.unacknowledged);
            let incarnation = watcher.registration.incarnation;
            if !findings.is_empty() {
                self.apply(&Command::Health(HealthCommand::Report {
                    leader: self.led.cluster.leader(),
                    host,
                    incarnation,
                    findings,
                }));
            }
        }
    }

    fn apply(&mut self, command: &Command) -> Applied {
        let applied = self.led.cluster.apply(command);
        self.record_events();
        applied
    }

    fn require(&mut self, command: &Command) -> Result<()> {
        let applied = self.apply(command);
        applied
            .result
            .map(drop)
            .map_err(|refused| refused.to_string().into())
    }

    /// Records the events since the last call, at the current time.
    fn record_events(&mut self) {
        let after_ms = self.led.cluster.now.since(self.injected);
        let state = &self.led.cluster.state;
        let name = |id: JobId| {
            let named = self.jobs.iter().find(|(_, job)| **job == id);
            named.map_or_else(|| id.to_string(), |(name, _)| name.clone())
        };
        let lines = state.events.kept_after(self.recorded);
        let lines: Vec<String> = lines
            .flat_map(|(_, events)| events.iter())
            .filter_map(|event| show::event(&event.kind, &name))
            .collect();
        self.recorded = state.revision;
        self.happened
            .extend(lines.into_iter().map(|line| (after_ms, line)));
    }

    fn watcher_of(&mut self, host: HostId) -> Result<&mut SimulatedMonitor> {
        self.hosts
            .get_mut(&host)
            .ok_or_else(|| "no such host".into())
    }

    fn target(&self, place: &str) -> Result<BlockTarget> {
        match self.place(place)? {
            (_, Component::Gpu(gpu)) => Ok(BlockTarget::Gpu(gpu)),
            (host, _) => {
                let host = self.led.cluster.state.host(host).ok_or("no such host")?;
                Ok(BlockTarget::Host(host.name.to_string()))
            }
        }
    }

    /// Parses `HOST`, `HOST/GPU` or `HOST:PORT` into the component that a worker would report.
    fn place(&self, text: &str) -> Result<(HostId, Component)> {
        if let Some((host, index)) = text.split_once('/').filter(|_| !text.contains(':')) {
            let (host, index) = (host.parse()?, index.parse()?);
            let gpu: GpuUuid = testing::gpu_uuid(host, index);
            return Ok((HostId(host), Component::Gpu(gpu)));
        }
        if let Some((host, name)) = text.split_once(':') {
            let nic = Component::Nic {
                host: HostId(0),
                name: name.to_owned(),
            };
            return Ok((HostId(host.parse()?), nic));
        }
        Ok((HostId(text.parse()?), THIS_HOST))
    }
}

impl SimulatedMonitor {
    fn see(&mut self, seen: Observation) {
        self.evaluator.see(seen);
    }

    /// Numbers the findings and fills in the host's id.
    fn collect_findings(&mut self, host: HostId) {
        block_on(self.evaluator.forward_findings());
        while let Ok(MonitorReport::Found(findings)) = self.incoming.try_recv() {
            for mut finding in findings {
                self.sequence += 1;
                finding.sequence = self.sequence;
                match &mut finding.component {
                    Component::Host(of) | Component::Nic { host: of, .. } => *of = host,
                    Component::Gpu(_) | Component::Rack(_) => {}
                }
                self.unacknowledged.push(finding);
            }
        }
        self.evaluator.see(Observation::Acknowledged(self.sequence));
    }
}

/// A duration for output.
fn format_duration(span_ms: u64) -> String {
    match span_ms {
        0..1_000 => format!("{span_ms} ms"),
        1_000..60_000 => format!("{}.{} s", span_ms / 1_000, span_ms % 1_000 / 100),
        _ => format!("{} min {} s", span_ms / 60_000, span_ms % 60_000 / 1_000),
    }
}
