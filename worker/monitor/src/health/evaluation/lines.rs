//! Evaluation of kernel log lines.

use muster_health::evaluate::{Assessment, LineKind as Pair, judge_sxid, judge_xid};
use muster_health::kernel_log::{Event, HostFinding, Recovery, Sxid, Xid};
use muster_health::rules::{Blame, XidSeverity};
use muster_model::health::{Component, ComponentKind, Finding, Severity, raw_evidence};
use muster_model::ids::GpuUuid;
use muster_supervisor::lease::clock::wall_clock;
use tokio::time::sleep;

use crate::health::evaluation::RuleEvaluator;
use crate::health::sampling::adapters;
use crate::health::{Observation, RECOVERY_RULES, Sample, THIS_HOST};
use crate::limits::XID_DETAILS_WAIT;
use crate::metrics;

/// The rule of all XIDs.
pub(super) const XID: &str = "xid";
/// Metric of XIDs: 0 for those that are only logged, up to 3 for a GPU that does not work.
const POLICY: &str = "policy";
/// XIDs evaluated by their code, for which a log line adds details: the location of an XID 13, the
/// registers of an XID 74.
const WITH_DETAILS: [u32; 2] = [13, 74];
/// The rule of all SXids.
pub(super) const SXID: &str = "sxid_fatal";

impl RuleEvaluator {
    pub(super) fn line(&mut self, event: Event, text: &str) {
        match event {
            Event::Xid {
                gpu: Some(gpu),
                xid,
                ..
            } => self.xid(gpu, &xid, text),
            Event::Xid { bus, xid, .. } => {
                metrics::xid(xid.code);
                tracing::warn!(%bus, code = xid.code, text, "XID of a GPU that this host does not offer");
            }
            Event::Sxid { sxid, .. } => self.sxid(&sxid, text),
            Event::Host(sign) => self.sign(&sign, text),
        }
    }

    /// An XID, from the kernel's log or from NVML: the second report of the same one is dropped.
    pub(super) fn xid(&mut self, gpu: GpuUuid, xid: &Xid, evidence: &str) {
        metrics::xid(xid.code);
        self.known_faults.note_code(gpu, xid.code);
        let judged = judge_xid(&self.rules.codes, xid, self.release);
        let policy = self.rules.codes.xid(xid.code);
        if policy.is_some_and(|policy| policy.blame == Blame::Nothing) {
            tracing::info!(%gpu, code = xid.code, evidence, "ignored an XID");
            return;
        }
        if judged.severity >= Severity::Degraded {
            self.known_faults.note_xid(gpu, (self.clock)());
        }
        let is_verdict = policy.is_some_and(|policy| policy.severity == XidSeverity::Text);
        if let (true, Some(recovery)) = (is_verdict, xid.recovery) {
            self.recovery(gpu, recovery, evidence);
            return;
        }
        let component = Component::Gpu(gpu);
        let cluster = xid.place.map(|place| (place.gpc, place.tpc));
        self.code(Some(gpu), xid.code, &judged, XID, POLICY, |finding| {
            Finding {
                component,
                measured: policy_level(judged.severity),
                cluster,
                evidence: raw_evidence(evidence),
                ..finding
            }
        });
    }

    /// The recovery action that the driver recommends. A severity cannot distinguish a reset from a reboot:
    /// the NVML rules for the same action can, and the second report adds nothing.
    fn recovery(&mut self, gpu: GpuUuid, recovery: Recovery, evidence: &str) {
        for rule in RECOVERY_RULES {
            let metrics = [("action", recovery.number())];
            let sample = Sample::new(rule, Component::Gpu(gpu), &metrics);
            self.sample_with_evidence(&sample, Some(evidence));
        }
    }

    /// An XID that the driver reports, by its code alone. The kernel's log may give details at the same
    /// moment: XIDs that are evaluated by their registers, text or location wait for that.
    pub(super) fn driver_xid(&mut self, gpu: GpuUuid, code: u32) {
        if !self.needs_log_line(code) {
            self.evaluate_driver_xid(gpu, code);
            return;
        }
        let seen = self.seen.clone();
        tokio::spawn(async move {
            sleep(XID_DETAILS_WAIT).await;
            // Closed: the agent is ending.
            drop(seen.send(Observation::LateXid(gpu, code)).await);
        });
    }

    pub(super) fn evaluate_driver_xid(&mut self, gpu: GpuUuid, code: u32) {
        let xid = Xid {
            code,
            ..Xid::default()
        };
        self.xid(gpu, &xid, &format!("xid-{code}: reported by the driver"));
    }

    /// Whether a log line about this XID has more details than its code.
    fn needs_log_line(&self, code: u32) -> bool {
        let codes = &self.rules.codes;
        let policy = codes.xid(code);
        let is_read = policy.is_some_and(|policy| {
            matches!(policy.severity, XidSeverity::Decode | XidSeverity::Text)
        });
        is_read || WITH_DETAILS.contains(&code)
    }

    fn sxid(&mut self, sxid: &Sxid, evidence: &str) {
        metrics::sxid(sxid.code);
        let judged = judge_sxid(&self.rules.codes, sxid);
        let metric = if judged.severity == Severity::Fatal {
            "fatal"
        } else {
            "nonfatal"
        };
        self.code(None, sxid.code, &judged, SXID, metric, |finding| Finding {
            evidence: raw_evidence(evidence),
            ..finding
        });
    }

    /// Reports a code, unless it was reported a moment ago.
    fn code(
        &mut self,
        gpu: Option<GpuUuid>,
        code: u32,
        judged: &Assessment,
        rule: &str,
        metric: &str,
        about: impl FnOnce(Finding) -> Finding,
    ) {
        let now = self.now();
        match self.coalescer.record(now, gpu, code) {
            Pair::Again => return,
            Pair::New { suppressed: 0 } => {}
            Pair::New { suppressed } => {
                tracing::info!(rule, code, suppressed, "merged equal lines");
            }
        }
        self.found.push(about(Finding {
            sequence: 0,
            rule: rule.to_owned(),
            component: THIS_HOST,
            severity: judged.severity,
            metric: metric.to_owned(),
            measured: 1,
            code: Some(code),
            cluster: None,
            evidence: String::new(),
            at: wall_clock(),
        }));
    }

    fn sign(&mut self, sign: &HostFinding, text: &str) {
        let Some(kind) = self.rules.rule(sign.rule).map(|rule| rule.component) else {
            self.miss(sign.rule);
            return;
        };
        let component = match (kind, sign.bus) {
            (ComponentKind::Gpu, Some(bus)) => self.host.buses.gpu(bus).map(Component::Gpu),
            (ComponentKind::Gpu, None) => None,
            (ComponentKind::Nic, Some(bus)) => {
                Some(adapters::at(&self.host.root, bus).unwrap_or(THIS_HOST))
            }
            (ComponentKind::Nic | ComponentKind::Host | ComponentKind::Rack, _)
            | (ComponentKind::Task, _) => Some(THIS_HOST),
        };
        let Some(component) = component else {
            tracing::info!(
                rule = sign.rule,
                text,
                "log line about a device that this host does not offer"
            );
            return;
        };
        let sample = Sample::new(sign.rule, component, &[(sign.metric, sign.value)]);
        self.sample_with_evidence(&sample, Some(text));
    }

    pub(super) fn lost(&mut self, lost: u64) {
        let lost = i64::try_from(lost).unwrap_or(i64::MAX);
        self.sample(&Sample::new("kernel_log_gap", THIS_HOST, &[("lost", lost)]));
    }
}

/// Value of the rule's metric for the severity of an XID.
const fn policy_level(severity: Severity) -> i64 {
    match severity {
        Severity::Healthy | Severity::Info => 0,
        Severity::Warn => 1,
        Severity::Degraded => 2,
        Severity::Fatal => 3,
    }
}
