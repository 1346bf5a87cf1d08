//! Hosts on which those who submit have no accounts for a while.

use crate::sim::draws::Domain;
use crate::sim::plan::rare::{Rare, draw_rare};
use crate::sim::plan::{Act, Deed, Shape};
use crate::sim::scale::Tempo;

/// Hosts that lose their accounts: a few of a world, and in long ones one an hour.
const FORGETFUL: Rare = Rare {
    domain: Domain::Accounts,
    first_act: 910_000,
    count_max: 3,
    every_s: 3_600,
};

/// In some worlds hosts lose their accounts; they have them again when hosts are healed.
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
