//! Evaluation of observations by the health rules; reports components that enter or leave a severity.
//!
//! A single task owns all health memory, so nothing here is locked. It never waits for a disk: notes go to
//! a writer after the findings that they record were passed on. A crash may therefore repeat a finding, but
//! never lose one.

mod counted;
mod lines;
pub(crate) mod notes;
mod readings;
pub(crate) mod rules;
pub(crate) mod signals;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use muster_health::checks::{CheckResult, RULE_PREFIX};
use muster_health::component::RecoveryLimits;
use muster_health::evaluate::{Coalescer, Readings};
use muster_health::guard_rails::RailsLimits;
use muster_health::kernel_log::{BusMap, Xid};
use muster_health::outbox::FINDINGS_WAITING_MAX;
use muster_health::rules::{Clears, Codes, RuleSet};
use muster_model::command::GpuHealth;
use muster_model::desired::{CountedFindings, FindingKey};
use muster_model::health::{Component, Finding, Severity, raw_evidence, with_detail};
use muster_model::ids::{GpuUuid, Revision};
use muster_model::time::{MonotonicMs, TimeMs};
use muster_supervisor::lease::clock::wall_clock;
use tokio::sync::{mpsc, watch};
use tokio::time::interval;

use crate::health::evaluation::notes::Notes;
use crate::health::evaluation::rules::RulesSource;
use crate::health::evaluation::signals::Signal;
use crate::health::sampling::Sweep;
use crate::health::{KnownFaults, Observation, Sample, THIS_HOST};
use crate::limits::HEALTH_TICK;
use crate::metrics;
use crate::reports::{MonitorReport, ReportSender};

/// The rule of boots that the scheduler did not order.
const REBOOT_UNEXPECTED: &str = "reboot_unexpected";

/// Properties of the host.
pub(super) struct Host {
    /// Folder with `proc` and `sys`.
    pub(super) root: PathBuf,
    pub(super) models: BTreeMap<GpuUuid, String>,
    pub(super) buses: BusMap,
    pub(super) sweep: Arc<Sweep>,
}

/// The monotonic clock of the rules' time windows.
pub(super) type Monotonic = Arc<dyn Fn() -> MonotonicMs + Send + Sync>;

/// Clock of the evaluator, and where its results go.
pub(super) struct Links {
    /// The clock of the rules' time windows.
    pub(super) clock: Monotonic,
    /// Current faults, for checks.
    pub(super) known_faults: KnownFaults,
    /// Notes for the next agent.
    pub(super) writer: watch::Sender<Notes>,
    /// Findings for the leader.
    pub(super) reports: ReportSender,
    /// The evaluator's own queue, for observations that arrive later: fetched rules, XIDs that wait for details.
    pub(super) seen: mpsc::Sender<Observation>,
}

/// State of the rule evaluation.
pub(super) struct RuleEvaluator {
    rules: RuleSet,
    /// Fingerprint of the rules' file.
    rules_sum: u64,
    revision: Revision,
    source: RulesSource,
    host: Host,
    /// Release of the GPU driver, which determines the layout of some registers.
    release: Option<u32>,
    clock: Monotonic,
    coalescer: Coalescer,
    readings: Readings,
    known_faults: KnownFaults,
    notes: Notes,
    /// New findings, not passed on yet.
    found: Vec<Finding>,
    /// Findings passed on but not acknowledged, with the sequence numbers that the agent gives them.
    waiting: VecDeque<(u64, Finding)>,
    /// Sequence number of the last finding passed on.
    last_sequence: u64,
    /// GPUs whose health was reported since the start.
    reported: BTreeSet<GpuUuid>,
    /// Findings that the cluster counts against this host.
    counted: CountedFindings,
    /// Counted findings without a reading, to be reported as over unless they are found.
    unconfirmed: BTreeSet<FindingKey>,
    /// Unknown rules that were already logged.
    missed: BTreeSet<String>,
    writer: watch::Sender<Notes>,
    reports: ReportSender,
    seen: mpsc::Sender<Observation>,
}

impl RuleEvaluator {
    /// Continues from an earlier agent's notes; findings that the leader has not acknowledged are reported
    /// again.
    pub(super) fn new(mut notes: Notes, host: Host, source: RulesSource, links: Links) -> Self {
        let Links {
            clock,
            known_faults,
            writer,
            reports,
            seen,
        } = links;
        let found = std::mem::take(&mut notes.unacknowledged);
        let mut evaluator = Self {
            rules: shipped(),
            rules_sum: RuleSet::fingerprint(RuleSet::SHIPPED_TEXT),
            revision: Revision::default(),
            source,
            release: release(&host.root),
            host,
            clock,
            coalescer: Coalescer::default(),
            readings: Readings::default(),
            known_faults,
            notes,
            found,
            waiting: VecDeque::new(),
            last_sequence: 0,
            reported: BTreeSet::new(),
            counted: CountedFindings::default(),
            unconfirmed: BTreeSet::new(),
            missed: BTreeSet::new(),
            writer,
            reports,
            seen,
        };
        let now = evaluator.now();
        for (id, component, severity) in &evaluator.notes.severities {
            let Some(rule) = evaluator.rules.rule(id) else {
                continue;
            };
            if evaluator.notes.are_of_another_boot {
                evaluator.readings.doubt(now, rule, component);
            } else {
                evaluator.readings.resume(now, rule, component, *severity);
            }
        }
        evaluator.known_faults.set_rules(&evaluator.rules);
        evaluator.publish_faulty();
        evaluator
    }

    /// Reports an unexpected reboot of the host.
    pub(super) fn rebooted(&mut self) {
        let evidence = "the host has booted, and the scheduler did not order it";
        self.add_finding(
            REBOOT_UNEXPECTED,
            THIS_HOST,
            Severity::Degraded,
            "reboots",
            1,
            evidence,
        );
    }

    /// Evaluates observations until all senders are dropped.
    pub(super) async fn run(mut self, mut seen: mpsc::Receiver<Observation>) {
        let mut tick = interval(HEALTH_TICK);
        loop {
            tokio::select! {
                seen = seen.recv() => match seen {
                    Some(seen) => self.see(seen),
                    None => return,
                },
                _ = tick.tick() => self.tick(),
            }
            self.forward_findings().await;
        }
    }

    pub(super) fn see(&mut self, seen: Observation) {
        match seen {
            Observation::Line {
                event,
                text,
                cursor,
            } => {
                self.notes.cursor = cursor.unwrap_or_else(|| self.notes.cursor.clone());
                self.line(event, &text);
                self.write();
            }
            Observation::Lost(lost) => self.lost(lost),
            Observation::Samples(samples) => {
                for sample in &samples {
                    self.sample(sample);
                }
            }
            Observation::SampleWithText(sample, text) => {
                self.sample_with_evidence(&sample, Some(&text))
            }
            Observation::Gpu(gpu, health) => self.gpu(gpu, &health),
            Observation::Xid(gpu, code) => self.driver_xid(gpu, code),
            Observation::LateXid(gpu, code) => self.evaluate_driver_xid(gpu, code),
            Observation::Checked(name, result) => self.checked(&name, &result),
            Observation::Acknowledged(number) => self.acknowledge(number),
            Observation::Rules(revision, sum) => self.fetch(revision, sum),
            Observation::Fetched(revision, rules) => {
                self.revision = revision;
                self.rules = rules.set;
                self.rules_sum = rules.sum;
                self.known_faults.set_rules(&self.rules);
                self.publish_faulty();
                self.compare_counted();
            }
            Observation::Counted(counted) => {
                self.counted = counted;
                self.compare_counted();
            }
            Observation::Repaired(component) => {
                self.readings.forget(&component);
                self.notes.severities.retain(|(_, of, _)| *of != component);
                self.publish_faulty();
                self.write();
            }
        }
    }

    /// Handles elapsed time: clears findings not observed for long enough, and detects a driver that does
    /// not answer.
    pub(super) fn tick(&mut self) {
        let now = self.now();
        for (id, component) in self.readings.quiet(now) {
            self.set_severity(&id, &component, Severity::Healthy);
            let evidence = "not observed for long enough";
            self.add_finding(&id, component, Severity::Healthy, "", 0, evidence);
        }
        if let Some(unfinished_s) = self.host.sweep.unfinished_s() {
            let metrics = [("unfinished_s", unfinished_s)];
            self.sample(&Sample::new("nvml_latency", THIS_HOST, &metrics));
        }
    }

    fn gpu(&mut self, gpu: GpuUuid, health: &GpuHealth) {
        let signal_name = match health {
            GpuHealth::Healthy => None,
            GpuHealth::Faulted { signal, detail } if signal == signals::NO_DATA => {
                // The silence hides earlier faults and ends when the sampler gets an answer.
                tracing::warn!(%gpu, detail, "the driver reports nothing about a GPU");
                let metrics = [("unfinished_s", Sweep::SILENCE_S)];
                self.sample(&Sample::new("nvml_latency", THIS_HOST, &metrics));
                return;
            }
            GpuHealth::Faulted { signal, detail } => Some((signal, detail)),
        };
        let before = self
            .notes
            .signals
            .iter()
            .position(|(of, _)| *of == gpu)
            .map(|at| self.notes.signals.remove(at).1);
        if let Some((signal_name, _)) = signal_name {
            self.notes.signals.push((gpu, signal_name.clone()));
        }
        if before.as_ref() == signal_name.map(|(signal_name, _)| signal_name) {
            self.confirm_signals(gpu);
            return;
        }
        if let Some(signal) = before.as_deref().and_then(signals::find) {
            self.signal_over(gpu, signal);
        }
        if let Some((signal_name, detail)) = signal_name {
            let evidence = with_detail(signal_name, detail);
            match (signals::xid(signal_name), signals::find(signal_name)) {
                (Some(code), _) => self.xid(
                    gpu,
                    &Xid {
                        code,
                        ..Xid::default()
                    },
                    &evidence,
                ),
                (None, Some(signal)) => self.signal(gpu, signal, &evidence),
                (None, None) => {
                    tracing::warn!(%gpu, evidence, "no health rule covers this fault")
                }
            }
        }
        self.confirm_signals(gpu);
        self.write();
    }

    fn signal(&mut self, gpu: GpuUuid, signal: &'static Signal, evidence: &str) {
        if self.another_shows(gpu, signal) {
            return;
        }
        let Some(severity) = self
            .rules
            .rule(signal.rule)
            .map(|rule| signal.severity(rule))
        else {
            self.miss(signal.rule);
            return;
        };
        self.add_finding(
            signal.rule,
            signal.component(gpu),
            severity,
            signal.metric,
            1,
            evidence,
        );
    }

    fn signal_over(&mut self, gpu: GpuUuid, signal: &'static Signal) {
        let rule = self.rules.rule(signal.rule);
        let clears = rule.is_some_and(|rule| rule.clears == Clears::Reading);
        if clears && !self.another_shows(gpu, signal) {
            let component = signal.component(gpu);
            let evidence = "no longer reported for the GPU";
            self.add_finding(
                signal.rule,
                component,
                Severity::Healthy,
                signal.metric,
                0,
                evidence,
            );
        }
    }

    /// Whether another GPU has the same fault, which concerns the host as a whole.
    fn another_shows(&self, gpu: GpuUuid, signal: &Signal) -> bool {
        signal.is_hosts
            && self.notes.signals.iter().any(|(of, name)| {
                let theirs = signals::find(name).map(|theirs| theirs.rule);
                *of != gpu && theirs == Some(signal.rule)
            })
    }

    fn checked(&mut self, name: &str, result: &CheckResult) {
        metrics::health_check(name, result.severity);
        let Some(severity) = result.severity else {
            // Unknown counts neither as healthy nor as faulty.
            tracing::warn!(
                check = name,
                text = result.text,
                "a site check returned no result"
            );
            return;
        };
        let id = format!("{RULE_PREFIX}{name}");
        let known = self
            .notes
            .severities
            .iter()
            .find(|(rule, _, _)| *rule == id);
        let before = known.map_or(Severity::Healthy, |(_, _, severity)| *severity);
        let is_unconfirmed = self.confirm(&id);
        if severity == before && !is_unconfirmed {
            return;
        }
        self.set_severity(&id, &THIS_HOST, severity);
        let measured = match severity {
            Severity::Healthy | Severity::Info => 0,
            Severity::Warn | Severity::Degraded => 1,
            Severity::Fatal => 2,
        };
        self.add_finding(&id, THIS_HOST, severity, "result", measured, &result.text);
    }

    /// Stores the severity of a component under a rule, for the next agent.
    fn set_severity(&mut self, id: &str, component: &Component, severity: Severity) {
        let severities = &mut self.notes.severities;
        severities.retain(|(rule, of, _)| !(rule == id && of == component));
        if severity != Severity::Healthy {
            severities.push((id.to_owned(), component.clone(), severity));
        }
        self.publish_faulty();
    }

    /// Publishes to checks the fatal findings that only a reading can clear.
    fn publish_faulty(&self) {
        let lasts = |id: &str| {
            let rule = self.rules.rule(id);
            rule.is_some_and(|rule| rule.clears == Clears::Reading)
        };
        let severities = self.notes.severities.iter();
        let faulty = severities
            .filter(|(id, _, severity)| *severity == Severity::Fatal && lasts(id))
            .map(|(id, component, _)| (id.clone(), component.clone()));
        self.known_faults.set_faulty(faulty.collect());
    }

    fn add_finding(
        &mut self,
        rule: &str,
        component: Component,
        severity: Severity,
        metric: &str,
        measured: i64,
        evidence: &str,
    ) {
        self.found.push(Finding {
            sequence: 0,
            rule: rule.to_owned(),
            component,
            severity,
            metric: metric.to_owned(),
            measured,
            code: None,
            cluster: None,
            evidence: raw_evidence(evidence),
            at: wall_clock(),
        });
    }

    /// Passes on the findings and stores the notes.
    pub(super) async fn forward_findings(&mut self) {
        if self.found.is_empty() {
            return;
        }
        let found = std::mem::take(&mut self.found);
        for finding in &found {
            metrics::health_finding(&finding.rule, finding.severity);
            tracing::info!(rule = finding.rule, component = %finding.component, severity = %finding.severity,
                evidence = finding.evidence, "found");
            self.last_sequence += 1;
            self.waiting
                .push_back((self.last_sequence, finding.clone()));
        }
        while self.waiting.len() > FINDINGS_WAITING_MAX {
            self.waiting.pop_front();
        }
        // Closed: the agent is ending, and so does this task.
        drop(self.reports.send(MonitorReport::Found(found)).await);
        self.write();
    }

    fn acknowledge(&mut self, number: u64) {
        let before = self.waiting.len();
        while self
            .waiting
            .front()
            .is_some_and(|(sequence, _)| *sequence <= number)
        {
            self.waiting.pop_front();
        }
        if self.waiting.len() != before {
            self.write();
        }
    }

    /// Stores the notes.
    fn write(&mut self) {
        let waiting = self
            .waiting
            .iter()
            .map(|(_, finding)| finding)
            .chain(&self.found)
            .cloned()
            .collect();
        self.writer.send_replace(Notes {
            unacknowledged: waiting,
            ..self.notes.clone()
        });
    }

    /// Fetches the rules of a revision, unless they are in force or have the same content.
    fn fetch(&mut self, revision: Revision, sum: u64) {
        if revision == self.revision {
            return;
        }
        if sum == self.rules_sum {
            self.revision = revision;
            return;
        }
        let (fetched, seen) = (self.source.clone().rules(revision, sum), self.seen.clone());
        tokio::spawn(async move {
            if let Some(rules) = fetched.await {
                drop(
                    seen.send(Observation::Fetched(revision, Box::new(rules)))
                        .await,
                );
            }
        });
    }

    fn miss(&mut self, rule: &str) {
        if self.missed.insert(rule.to_owned()) {
            tracing::info!(
                rule,
                "no rule of this name is in force: its readings are ignored"
            );
        }
    }

    /// The agent's monotonic time, used for time windows.
    fn now(&self) -> TimeMs {
        TimeMs((self.clock)().0)
    }
}

/// The default rules; none if the build is broken, which tests would have found.
fn shipped() -> RuleSet {
    RuleSet::shipped().unwrap_or_else(|error| {
        tracing::error!(%error, "the default health rules of this build are invalid");
        RuleSet {
            rules: Vec::new(),
            recovery_limits: RecoveryLimits::default(),
            rails: RailsLimits::default(),
            codes: Codes {
                xids: Vec::new(),
                sxids: Vec::new(),
                links: Vec::new(),
            },
        }
    })
}

/// The major release of the GPU driver: the first number of its version.
fn release(root: &std::path::Path) -> Option<u32> {
    let text = std::fs::read_to_string(root.join("proc/driver/nvidia/version")).ok()?;
    let version = text.split_whitespace().find(|part| {
        let mut parts = part.split('.');
        parts.clone().count() >= 2 && parts.all(|part| part.parse::<u32>().is_ok())
    })?;
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests;
