//! Fault plan: hosts on which the submitting users temporarily have no accounts.

use crate::sim::faults::fault::{Fault, ScheduledFault};
use crate::sim::faults::plan::Shape;
use crate::sim::faults::plan::optional::{OptionalFaults, draw_optional};
use crate::sim::random_streams::StreamOwner;
use crate::sim::scale::Tempo;

/// Frequency of lost accounts: a few per short world, and one an hour in long ones.
const FORGETFUL: OptionalFaults = OptionalFaults {
    domain: StreamOwner::Accounts,
    first_number: 910_000,
    count_max: 3,
    every_s: 3_600,
};

/// Draws in some worlds hosts that lose their accounts until hosts are repaired.
pub(super) fn draw_forgotten_accounts(
    seed: u64,
    shape: &Shape,
    faults_s: u64,
    tempo: Tempo,
) -> Vec<ScheduledFault> {
    draw_optional(&FORGETFUL, seed, tempo, faults_s, |random| {
        Fault::ForgetAccounts(shape.draw_host(random))
    })
}
