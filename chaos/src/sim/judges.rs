//! Everybody who watches a world: the oracles, the auditors, and what they found.

use std::sync::{Arc, Mutex, PoisonError};

use muster_core::audit::audit;
use muster_core::state::State;

use super::coverage::Coverage;
use super::report::Violation;
use crate::check::{Acknowledged, Agreement, Assembly, Exclusivity, Obedience, phantom_successes};

/// The judges of one world; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Judges {
    seen: Arc<Mutex<Seen>>,
}

/// What the judges have seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// Which processes ran on which GPUs.
    pub book: Exclusivity,
    /// Which members of gangs waited for which.
    pub assembly: Assembly,
    /// Which orders were acted on.
    pub obedience: Obedience,
    /// What users were answered.
    pub acknowledged: Acknowledged,
    /// What replicas' states hash to.
    pub agreement: Agreement,
    /// What the world went through.
    pub coverage: Coverage,
    /// What else must not have happened.
    pub violations: Vec<Violation>,
    /// States that the linter looked at.
    pub audits: u64,
}

impl Judges {
    /// Tells them something, or asks them.
    pub fn with<R>(&self, tell: impl FnOnce(&mut Seen) -> R) -> R {
        // A panic while the lock is held ends the world anyway; what is behind it is plain data.
        tell(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that something must not have happened.
    pub fn violate(&self, violation: Violation) {
        self.with(|seen| seen.violations.push(violation));
    }

    /// Whether nothing was found yet.
    #[must_use]
    pub fn content(&self) -> bool {
        self.with(|seen| seen.found().next().is_none())
    }

    /// Looks at a replica's state: the linter, and whether replicas agree.
    pub fn audit(&self, replica: u32, state: &State) {
        let findings = audit(state);
        let hash = state.state_hash();
        self.with(|seen| {
            seen.audits += 1;
            seen.agreement.shown(replica, state.revision, hash);
            let findings = findings
                .iter()
                .map(|finding| Violation::Audit(finding.to_string()));
            seen.violations.extend(findings);
        });
    }

    /// Judges a replica's state at rest.
    pub fn judge_final(&self, replica: u32, state: &State) {
        self.audit(replica, state);
        self.with(|seen| {
            let lost = seen.acknowledged.judge(state);
            seen.violations
                .extend(lost.into_iter().map(Violation::Lost));
            let phantoms = phantom_successes(state, &seen.book);
            let phantoms = phantoms.into_iter().map(Violation::Phantom);
            seen.violations.extend(phantoms);
        });
    }
}

impl Seen {
    /// Everything that must not have happened.
    pub fn found(&self) -> impl Iterator<Item = Violation> + '_ {
        let overlaps = self.book.overlaps().iter().cloned().map(Violation::Overlap);
        let early = self.assembly.found().iter().cloned();
        let stale = self.obedience.found().iter().cloned();
        let lost = self.acknowledged.contradictions().iter().cloned();
        let differ = self.agreement.found().iter().cloned();
        overlaps
            .chain(early.map(Violation::EarlyStart))
            .chain(stale.map(Violation::Disobedience))
            .chain(lost.map(Violation::Lost))
            .chain(differ.map(Violation::Divergence))
            .chain(self.violations.iter().cloned())
    }
}
