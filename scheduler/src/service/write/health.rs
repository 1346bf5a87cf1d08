//! Changes of health rules and resets of breakers.

use muster_engine::state::State;
use muster_health::rules::{RuleSet, WouldBlock, dry_run};
use muster_model::access::Role;
use muster_model::command::{Command, HealthCommand};
use muster_model::health::Finding;
use muster_model::rejection::Rejection;
use muster_proto::convert::{request_key, reset_breaker_command};
use muster_proto::field::{InvalidField, not_empty};
use muster_proto::v1;

use crate::audit_log::Record;
use crate::service::gate::Method;
use crate::service::write::request::{configuration_write, plain_write};
use crate::view::would_block_to_wire;

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

/// Converts new health rules, including the meaning of error codes, to a command; an invalid file is
/// reported by `apply`. Without a file, the rules of this build are used.
///
/// # Errors
/// `InvalidRequest` for an invalid request id, a missing author or an invalid file.
pub fn set_health_rules_command(
    mut request: v1::SetHealthRulesRequest,
) -> Result<Command, Rejection> {
    request.dry_run = false;
    let key = request_key("set_health_rules", &request.request_id, &request)?;
    not_empty("author", &request.author)?;
    let (text, shipped) = if request.rules.is_empty() {
        let version = RuleSet::SHIPPED_VERSION;
        (RuleSet::SHIPPED_TEXT.to_owned(), Some(version))
    } else {
        let whole = RuleSet::whole_text(&request.rules)
            .map_err(|error| InvalidField::new("rules", error.to_string()))?;
        (whole, None)
    };
    Ok(Command::Health(HealthCommand::SetRules {
        request: key,
        author: request.author,
        text: text.into(),
        shipped,
    }))
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
        not_evaluated: judged.not_evaluated,
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
