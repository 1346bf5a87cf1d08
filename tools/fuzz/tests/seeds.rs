//! Runs every target on its seeds: frozen bytes, examples and scripts of this repository, the initial corpus
//! of `make fuzz`.
#![expect(clippy::unwrap_used, reason = "a failed test should panic")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

#[test]
fn every_target_holds_on_its_seeds() {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("make-seeds");
    let Ok(made) = Command::new(&script).arg(folder.path()).output() else {
        // The test's own output, which the harness shows.
        drop(writeln!(
            std::io::stderr(),
            "skipped: python3 is not installed"
        ));
        return;
    };
    assert!(made.status.success(), "{made:?}");
    let mut checked = BTreeSet::new();
    for target in muster_fuzz::names() {
        for seed in fs::read_dir(folder.path().join(target))
            .into_iter()
            .flatten()
        {
            muster_fuzz::check(target, &fs::read(seed.unwrap().path()).unwrap());
            checked.insert(target);
        }
        // libFuzzer's first input without a corpus.
        muster_fuzz::check(target, b"");
    }
    let without: Vec<_> = muster_fuzz::names()
        .filter(|it| !checked.contains(it))
        .collect();
    assert!(without.is_empty(), "targets without seeds: {without:?}");
}
