//! Dry run of a set of rules: past findings, judged again.

use std::collections::BTreeMap;

use muster_model::health::{Component, Finding, Scope, Severity};
use muster_model::time::TimeMs;

use crate::evaluate::{XidReport, Xids};
use crate::rules::{Condition, Hold, Rule, RuleSet, XID_REPEAT, XidSeverity, rails};

/// The rule of all XIDs, which are judged by their codes.
const XID: &str = "xid";

/// A block that a set of rules would have placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WouldBlock {
    /// The component.
    pub component: Component,
    /// Name of the health rule.
    pub rule: String,
    /// Scope of the block.
    pub scope: Scope,
    /// Time at which it would first have been placed.
    pub at: TimeMs,
    /// Number of findings that would have led to it.
    pub findings: u32,
    /// The raw line of the first.
    pub evidence: String,
}

/// Differences between two sets of rules on the same findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DryRun {
    /// Number of judged findings.
    pub findings: usize,
    /// Number of findings of rules that the new set does not have.
    pub without_rule: usize,
    /// Time of the oldest judged finding; `None` without any.
    pub since: Option<TimeMs>,
    /// Rules of the new set that the history cannot judge, by name: their conditions differ from those by
    /// which workers reported findings, or depend on data that no finding contains (the owner of a job,
    /// silent hosts, ends of jobs). Additions or removals by such a rule are not meaningful. `rails`, if they
    /// differ: a dry run has none.
    pub not_evaluated: Vec<String>,
    /// Blocks by the new set that the old one did not place.
    pub added: Vec<WouldBlock>,
    /// Blocks by the old set that the new one would not have placed.
    pub dropped: Vec<WouldBlock>,
    /// Number of blocks placed by both.
    pub kept: usize,
}

/// Judges a history of findings by two sets of rules. It only has the findings: workers report when a
/// component crosses a threshold in force, and not the readings on either side of it.
#[must_use]
pub fn dry_run(old: &RuleSet, new: &RuleSet, findings: &[Finding]) -> DryRun {
    let mut before = blocks(old, findings);
    let mut result = DryRun {
        findings: findings.len(),
        without_rule: findings
            .iter()
            .filter(|finding| new.rule(&finding.rule).is_none())
            .count(),
        since: findings.iter().map(|finding| finding.at).min(),
        not_evaluated: not_evaluated(old, new),
        ..DryRun::default()
    };
    for (key, block) in blocks(new, findings) {
        match before.remove(&key) {
            Some(same) if same.scope >= block.scope => result.kept += 1,
            _ => result.added.push(block),
        }
    }
    result.dropped = before.into_values().collect();
    result
}

/// Rules of a new set with conditions that were not in force while the history was recorded. An XID is judged
/// by its code, and fatal ones are counted again.
fn not_evaluated(old: &RuleSet, new: &RuleSet) -> Vec<String> {
    let conditions = |rule: &Rule| (rule.degraded.when.clone(), rule.fatal.when.clone());
    let is_other = |rule: &&Rule| {
        let before = old.rule(&rule.id).map(conditions);
        before != Some(conditions(rule)) && ![XID, XID_REPEAT].contains(&rule.id.as_str())
    };
    let has_conditions = |rule: &&Rule| {
        let (degraded, fatal) = (&rule.degraded.when, &rule.fatal.when);
        !degraded.is_empty() || !fatal.is_empty()
    };
    let rules = new.rules.iter();
    let others = rules
        .filter(has_conditions)
        .filter(is_other)
        .map(|rule| rule.id.clone());
    let rails = (old.rails != new.rails).then(|| rails::RAILS.to_owned());
    let mut not_evaluated: Vec<String> = others.chain(rails).collect();
    not_evaluated.sort();
    not_evaluated
}

type Blocks = BTreeMap<(Component, String), WouldBlock>;

/// All blocks by component and rule.
fn blocks(set: &RuleSet, findings: &[Finding]) -> Blocks {
    let mut blocks = Blocks::new();
    let mut xids = Xids::default();
    for (index, finding) in findings.iter().enumerate() {
        let Some(rule) = set.rule(&finding.rule) else {
            continue;
        };
        let scope = scope(set, rule, &findings[..=index], finding);
        add(&mut blocks, rule, scope, finding, &finding.evidence);
        if let Some((rule, evidence)) = again(set, &mut xids, finding) {
            let scope = rule.block(Severity::Fatal);
            add(&mut blocks, rule, scope, finding, &evidence);
        }
    }
    blocks
}

fn add(blocks: &mut Blocks, rule: &Rule, scope: Scope, finding: &Finding, evidence: &str) {
    if scope == Scope::None {
        return;
    }
    let key = (finding.component.clone(), rule.id.clone());
    let block = blocks.entry(key).or_insert_with(|| WouldBlock {
        component: finding.component.clone(),
        rule: rule.id.clone(),
        scope,
        at: finding.at,
        findings: 0,
        evidence: evidence.to_owned(),
    });
    block.findings += 1;
    block.scope = block.scope.max(scope);
}

/// Whether fatal XIDs of a GPU recurred as often as a set requires. Findings do not contain the owner of the
/// job, so conditions on several users are left out.
fn again<'a>(set: &'a RuleSet, xids: &mut Xids, finding: &Finding) -> Option<(&'a Rule, String)> {
    let (Component::Gpu(gpu), Some(code)) = (&finding.component, finding.code) else {
        return None;
    };
    let seen = XidReport {
        gpu: *gpu,
        code,
        cluster: finding.cluster,
        job: None,
        user: None,
        at: finding.at,
        is_ours: false,
    };
    let mut escalations = xids.record(set, &seen).escalations.into_iter();
    let often = escalations.find(|it| it.rule == XID_REPEAT)?;
    Some((set.rule(XID_REPEAT)?, often.evidence))
}

/// Scope that a set would have blocked for a finding, with all findings before it.
fn scope(set: &RuleSet, rule: &Rule, until: &[Finding], finding: &Finding) -> Scope {
    if finding.severity == Severity::Healthy {
        return Scope::None;
    }
    let by_code = finding.code.and_then(|code| set.codes.xid(code));
    if let (true, Some(policy)) = (rule.id == XID, by_code) {
        let severity = match policy.severity {
            XidSeverity::Fatal => Severity::Fatal,
            XidSeverity::Degraded => Severity::Degraded,
            // The finding contains the result of registers and texts.
            XidSeverity::Decode | XidSeverity::Text => finding.severity,
            XidSeverity::Info | XidSeverity::Warn | XidSeverity::Detail => Severity::Warn,
        };
        let block = rule.block(severity);
        return if block == Scope::None || policy.block == Scope::None {
            block
        } else {
            policy.block
        };
    }
    let holds = |condition: &Condition| holds(condition, until, finding);
    if rule.fatal.when.iter().any(holds) {
        rule.block(Severity::Fatal)
    } else if rule.degraded.when.iter().any(holds) {
        rule.block(Severity::Degraded)
    } else {
        Scope::None
    }
}

/// Whether a condition holds at a finding. The worker has already checked that readings met it for long
/// enough.
fn holds(condition: &Condition, until: &[Finding], finding: &Finding) -> bool {
    let meets = |it: &Finding| {
        it.metric == condition.metric && condition.operator.holds(it.measured, condition.value)
    };
    if !meets(finding) {
        return false;
    }
    let Hold::Within { times, span_ms } = condition.hold else {
        return true;
    };
    let counts = |it: &&Finding| {
        it.component == finding.component
            && it.rule == finding.rule
            && finding.at.since(it.at) <= span_ms
            && meets(it)
    };
    until.iter().filter(counts).count() >= times as usize
}
