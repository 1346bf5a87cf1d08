//! Hosts on which those who submit have no accounts for a while.

use rand::Rng as _;

use super::{Act, Deed, Shape};
use crate::sim::draws::{Domain, draws};

/// Numbers of the acts that take accounts away begin here: a world has fewer others.
const ACCOUNT_ACTS: u32 = 910_000;
/// Hosts of one world that lose their accounts, at most.
const FORGETFUL_MAX: u32 = 3;

/// In one world in four some hosts lose their accounts; they have them again when hosts are healed.
pub(super) fn draw_forgotten_accounts(seed: u64, shape: &Shape, faults_s: u64) -> Vec<Act> {
    let mut random = draws(seed, Domain::Accounts, 0, 0);
    if !random.random_bool(0.25) {
        return Vec::new();
    }
    let count = random.random_range(1..=FORGETFUL_MAX);
    let act = |number| Act {
        number,
        at_ms: random.random_range(0..faults_s.max(1) * 1_000),
        deed: Deed::ForgetAccounts(shape.draw_host(&mut random)),
    };
    (ACCOUNT_ACTS..ACCOUNT_ACTS + count).map(act).collect()
}
