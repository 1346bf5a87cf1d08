//! Where the rules come from by which a worker judges.

use std::fmt::Debug;

use futures::future::BoxFuture;
use muster_core::health::rules::RuleSet;
use muster_core::ids::Revision;

/// Hands out the rules of a revision.
pub(super) trait RulesSource: Debug + Send + Sync {
    /// The rules that a revision set; none if they cannot be had, and what is in force stays.
    fn rules(&self, revision: Revision) -> BoxFuture<'static, Option<RuleSet>>;
}

/// Knows the rules that ship with Muster, which are in force until a revision sets others.
#[derive(Debug)]
pub(super) struct ShippedRules;

impl RulesSource for ShippedRules {
    fn rules(&self, revision: Revision) -> BoxFuture<'static, Option<RuleSet>> {
        let rules = (revision == Revision::default()).then(|| RuleSet::shipped().ok());
        Box::pin(std::future::ready(rules.flatten()))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_revision_0_is_shipped() {
        let shipped = ShippedRules.rules(Revision(0)).await;
        assert_eq!(shipped, Some(RuleSet::shipped().unwrap()));
        assert_eq!(ShippedRules.rules(Revision(7)).await, None);
    }
}
