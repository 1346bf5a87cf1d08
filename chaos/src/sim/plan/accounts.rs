//! Fault plan: hosts on which the submitting users temporarily have no accounts.

use crate::sim::draws::Domain;
use crate::sim::plan::rare::{Rare, draw_rare};
use crate::sim::plan::{Act, Deed, Shape};
use crate::sim::scale::Tempo;

/// Frequency of lost accounts: a few per short world, and one an hour in long ones.
const FORGETFUL: Rare = Rare {
    domain: Domain::Accounts,
    first_act: 910_000,
    count_max: 3,
    every_s: 3_600,
};

/// Draws in some worlds hosts that lose their accounts until hosts are repaired.
pub(super) fn draw_forgotten_accounts(
    seed: u64,
    shape: &Shape,
    faults_s: u64,
    tempo: Tempo,
) -> Vec<Act> {
    draw_rare(&FORGETFUL, (seed, tempo), faults_s, |random| {
        Deed::ForgetAccounts(shape.draw_host(random))
    })
}
