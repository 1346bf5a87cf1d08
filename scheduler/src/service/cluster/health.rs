//! Health rules and breakers.

use muster_engine::state::State;
use muster_health::rules::{RuleSet, WouldBlock, dry_run};
use muster_model::command::{Command, HealthCommand};
use muster_model::health::Finding;
use muster_model::rejection::Rejection;
use muster_proto::convert::{request_key, reset_breaker_command};
use muster_proto::field::{InvalidField, not_empty};
use muster_proto::v1;
use tonic::Status;

use crate::service::context::Context;
use crate::service::write::local_write::{command, propose, rehearse};
use crate::view::would_block_to_wire;

/// Blocks listed in one answer.
const BLOCKS_LISTED_MAX: usize = 100;

/// Converts new health rules, including the meaning of error codes, to a command; an invalid file is
/// reported by `apply`. Without a file, the rules of this build are used.
///
/// # Errors
/// `InvalidRequest` for an invalid request id, a missing author or an invalid file.
pub fn set_health_rules_command(request: v1::SetHealthRulesRequest) -> Result<Command, Rejection> {
    let key = request_key("set_health_rules", &request.request_id, &request)?;
    not_empty("author", &request.author)?;
    let (text, shipped) = if request.rules.is_empty() {
        let version = RuleSet::SHIPPED_VERSION;
        (RuleSet::SHIPPED_TEXT.to_owned(), Some(version))
    } else {
        let whole = RuleSet::whole_text(&request.rules);
        let whole = whole.map_err(|error| InvalidField::new("rules", error.to_string()))?;
        (whole, None)
    };
    Ok(Command::Health(HealthCommand::SetRules {
        request: key,
        author: request.author,
        text: text.into(),
        shipped,
    }))
}

/// Replaces the health rules, unless the request is a dry run.
pub(crate) async fn set_rules(
    context: &Context,
    request: v1::SetHealthRulesRequest,
) -> Result<v1::SetHealthRulesResponse, Status> {
    let is_rehearsal = request.dry_run;
    let command = command(set_health_rules_command(request))?;
    let (before, after) = rehearse(context, &command)?;
    let revision = if is_rehearsal {
        before.revision
    } else {
        propose(context, command).await?.0
    };
    Ok(v1::SetHealthRulesResponse {
        revision: revision.get(),
        ..effect(&before, &after)
    })
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

/// Resets a breaker after an operator's review.
pub(crate) async fn reset_breaker(
    context: &Context,
    request: v1::ResetBreakerRequest,
) -> Result<v1::ResetBreakerResponse, Status> {
    let (revision, _) = propose(context, command(reset_breaker_command(request))?).await?;
    Ok(v1::ResetBreakerResponse {
        revision: revision.get(),
    })
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
