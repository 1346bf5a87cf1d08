//! Whole clusters under faults.

use super::*;

fn options(seed: u64, mutant: Option<Mutant>) -> WorldOptions {
    WorldOptions {
        seed,
        faults_s: 60,
        mutant,
    }
}

#[test]
fn a_cluster_under_faults_keeps_every_promise() {
    for seed in 0..6 {
        let report = simulate(options(seed, None)).unwrap();
        assert!(report.violations.is_empty(), "{report}");
        assert!(report.acknowledged > 0 && report.succeeded > 0, "{report}");
    }
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let first = simulate(options(77, None)).unwrap();
    assert_eq!(first, simulate(options(77, None)).unwrap());
}
