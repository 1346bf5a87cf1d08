//! Changes of health rules and resets of breakers.

use muster_engine::state::State;
use muster_health::rules::{WouldBlock, dry_run};
use muster_model::access::Role;
use muster_model::health::Finding;
use muster_proto::convert::{reset_breaker_command, set_health_rules_command, would_block_to_wire};
use muster_proto::v1;

use crate::audit_log::Record;
use crate::service::gate::Method;
use crate::service::write::request::{configuration_write, plain_write};

/// Blocks listed in one answer.
const BLOCKS_LISTED_MAX: usize = 100;

configuration_write! {
    SetHealthRulesRequest => SetHealthRulesResponse, Method::of_admin("SetHealthRules", Role::Admin),
    set_health_rules_command, "health rules", effect
}

plain_write! {
    ResetBreakerRequest => ResetBreakerResponse, Method::of_admin("ResetBreaker", Role::Operator),
    reset_breaker_command, by [author],
    record |it| Record::about(&it.request_id, format!("pool {}", it.pool)),
}

/// Effect that new rules would have had on recent findings.
fn effect(before: &State, after: &State) -> v1::SetHealthRulesResponse {
    let (old, new) = (&before.health_rules.set, &after.health_rules.set);
    let findings: Vec<Finding> = before.health.findings().cloned().collect();
    let judged = dry_run(old, new, &findings);
    let listed = |blocks: &[WouldBlock]| {
        let first = blocks.iter().take(BLOCKS_LISTED_MAX);
        first
            .map(|block| would_block_to_wire(before, block))
            .collect()
    };
    v1::SetHealthRulesResponse {
        revision: 0,
        rules: count(new.rules.len()),
        findings: count(judged.findings),
        findings_without_rule: count(judged.without_rule),
        added: listed(&judged.added),
        dropped: listed(&judged.dropped),
        kept: count(judged.kept),
        findings_since_ms: judged.since.map(|at| at.0),
        unjudged: judged.unjudged,
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
