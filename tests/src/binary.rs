//! Locations of the programs under test.

use std::path::PathBuf;

/// The `muster` binary: `$MUSTER_BIN`, or the one built next to the running test.
///
/// # Panics
/// If it does not exist: the tests do not build it, `make build` does.
#[must_use]
pub fn muster_binary() -> PathBuf {
    let binary = std::env::var_os("MUSTER_BIN").map_or_else(beside_the_test, PathBuf::from);
    assert!(
        binary.is_file(),
        "{} does not exist: `make build` builds it",
        binary.display()
    );
    binary
}

/// The example trainer, which is built next to the `muster` binary.
///
/// # Panics
/// If it does not exist.
#[must_use]
pub fn trainer_binary() -> PathBuf {
    let binary = muster_binary().with_file_name("muster-trainer");
    assert!(
        binary.is_file(),
        "{} does not exist: `make build` builds it",
        binary.display()
    );
    binary
}

/// Tests run as `target/debug/deps/NAME-HASH`; binaries are one folder up.
fn beside_the_test() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap();
    folder.join("muster")
}
