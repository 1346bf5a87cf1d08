//! What a set of rules would have done: the findings of some days, judged anew.

use std::collections::BTreeMap;

use muster_model::health::{Component, Finding, Scope, Severity};
use muster_model::time::TimeMs;

use crate::evaluate::{XidSeen, Xids};
use crate::rules::{Condition, Hold, Rule, RuleSet, XID_REPEAT, XidSeverity, rails};

/// The rule of all XIDs, which their codes judge.
const XID: &str = "xid";

/// A block that a set of rules would have put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WouldBlock {
    /// Of what.
    pub component: Component,
    /// By which rule.
    pub rule: String,
    /// How much.
    pub scope: Scope,
    /// When it would first have been put.
    pub at: TimeMs,
    /// How many findings would have led to it.
    pub findings: u32,
    /// The raw line of the first.
    pub evidence: String,
}

/// How two sets of rules differ on the same findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DryRun {
    /// Findings that were judged.
    pub findings: usize,
    /// Findings of rules that the new set does not have.
    pub without_rule: usize,
    /// When the oldest finding that was judged was made; none without any.
    pub since: Option<TimeMs>,
    /// Rules of the new set that the history cannot judge, by name: their conditions are others than those by which workers
    /// told what they found, or count what no finding says (whose job it was, which host fell silent, how a job ended). What
    /// such a rule adds or drops says nothing. `rails`, if they are others: a dry run has none.
    pub unjudged: Vec<String>,
    /// Blocks by the new set that the old one did not put.
    pub added: Vec<WouldBlock>,
    /// Blocks by the old set that the new one would not have put.
    pub dropped: Vec<WouldBlock>,
    /// Blocks by both.
    pub kept: usize,
}

/// Judges a history of findings by two sets of rules. It knows what was found and no more: workers tell when a component
/// crosses a threshold that is in force, and not what they read on either side of it.
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
        unjudged: unjudged(old, new),
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

/// Rules of a new set with conditions that were not in force while the history was made. An XID is judged by its code, and
/// fatal ones are counted again.
fn unjudged(old: &RuleSet, new: &RuleSet) -> Vec<String> {
    let conditions = |rule: &Rule| (rule.degraded.when.clone(), rule.fatal.when.clone());
    let is_other = |rule: &&Rule| {
        let before = old.rule(&rule.id).map(conditions);
        before != Some(conditions(rule)) && ![XID, XID_REPEAT].contains(&rule.id.as_str())
    };
    let has_conditions = |rule: &&Rule| {
        let (degraded, fatal) = (&rule.degraded.when, &rule.fatal.when);
        !degraded.is_empty() || !fatal.is_empty()
    };
    let others = new.rules.iter().filter(has_conditions).filter(is_other);
    let others = others.map(|rule| rule.id.clone());
    let rails = (old.rails != new.rails).then(|| rails::RAILS.to_owned());
    let mut unjudged: Vec<String> = others.chain(rails).collect();
    unjudged.sort();
    unjudged
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
        add(&mut blocks, (rule, scope), finding, &finding.evidence);
        if let Some((rule, evidence)) = again(set, &mut xids, finding) {
            add(
                &mut blocks,
                (rule, rule.block(Severity::Fatal)),
                finding,
                &evidence,
            );
        }
    }
    blocks
}

fn add(blocks: &mut Blocks, (rule, scope): (&Rule, Scope), finding: &Finding, evidence: &str) {
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

/// Whether fatal XIDs of a GPU came again as often as a set says. Whose job had them no finding tells, so what asks for
/// several users is left out.
fn again<'a>(set: &'a RuleSet, xids: &mut Xids, finding: &Finding) -> Option<(&'a Rule, String)> {
    let (Component::Gpu(gpu), Some(code)) = (&finding.component, finding.code) else {
        return None;
    };
    let seen = XidSeen {
        gpu: *gpu,
        code,
        cluster: finding.cluster,
        job: None,
        user: None,
        at: finding.at,
        is_ours: false,
    };
    let mut escalations = xids.see(set, &seen).escalations.into_iter();
    let often = escalations.find(|it| it.rule == XID_REPEAT)?;
    Some((set.rule(XID_REPEAT)?, often.evidence))
}

/// What a set would have blocked for a finding, with all that came before it.
fn scope(set: &RuleSet, rule: &Rule, until: &[Finding], finding: &Finding) -> Scope {
    if finding.severity == Severity::Healthy {
        return Scope::None;
    }
    let by_code = finding.code.and_then(|code| set.codes.xid(code));
    if let (true, Some(policy)) = (rule.id == XID, by_code) {
        let severity = match policy.severity {
            XidSeverity::Fatal => Severity::Fatal,
            XidSeverity::Degraded => Severity::Degraded,
            // What registers and texts told is in the finding.
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

/// Whether a condition holds at a finding. That readings met it for long enough was seen by who found it.
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
