//! Circuit breaker of a pool: a rule that wants to block too much blocks nothing more until the wave is over,
//! or an operator has looked.

use std::collections::VecDeque;

use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

/// Proposals that are remembered; further ones do not change the outcome.
const PROPOSALS_KEPT_MAX: usize = 1_024;

/// A pool's breaker. Replicated, so that a new leader does not start with an untripped one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    /// Times at which soft blocks were proposed, allowed or not.
    proposals: VecDeque<TimeMs>,
    /// Set while it is tripped.
    tripped: Option<Trip>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Trip {
    since: TimeMs,
    /// Number of proposals within the span before.
    rate: usize,
}

impl Breaker {
    /// Whether it refuses soft blocks.
    #[must_use]
    pub const fn is_tripped(&self) -> bool {
        self.tripped.is_some()
    }

    /// Time since which it is tripped.
    #[must_use]
    pub fn tripped_since(&self) -> Option<TimeMs> {
        self.tripped.map(|trip| trip.since)
    }

    /// Earliest time at which it may close: its span after it tripped, or when the oldest proposal that
    /// prevents it is dropped.
    pub(super) fn closes_at(&self, span_ms: u64) -> Option<TimeMs> {
        let trip = self.tripped?;
        let over = trip.since.after(span_ms);
        let oldest = self.proposals.front().map(|at| at.after(span_ms + 1));
        Some(over.max(oldest.unwrap_or(over)))
    }

    /// Counts a proposal.
    pub(super) fn count(&mut self, now: TimeMs, span_ms: u64) {
        self.tick(now, span_ms);
        if self.proposals.len() >= PROPOSALS_KEPT_MAX {
            self.proposals.pop_front();
        }
        self.proposals.push_back(now);
    }

    /// Trips the breaker.
    pub(super) fn trip(&mut self, now: TimeMs, span_ms: u64) {
        let rate = self.rate(now, span_ms);
        self.tripped.get_or_insert(Trip { since: now, rate });
    }

    /// Applies the time: it closes after its span, once the rate is less than half of that when it tripped.
    /// Returns whether it closed.
    pub(super) fn tick(&mut self, now: TimeMs, span_ms: u64) -> bool {
        while self
            .proposals
            .front()
            .is_some_and(|at| now.since(*at) > span_ms)
        {
            self.proposals.pop_front();
        }
        let rate = self.rate(now, span_ms);
        let is_over = |trip: &Trip| now.since(trip.since) >= span_ms && 2 * rate < trip.rate.max(1);
        self.tripped.take_if(|trip| is_over(trip)).is_some()
    }

    /// Resets it after an operator has looked.
    pub fn reset(&mut self) {
        self.tripped = None;
        self.proposals.clear();
    }

    fn rate(&self, now: TimeMs, span_ms: u64) -> usize {
        let is_recent = |at: &&TimeMs| now.since(**at) <= span_ms;
        self.proposals.iter().filter(is_recent).count()
    }
}
