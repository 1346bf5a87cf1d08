//! The reference of the commands in the documentation is that of the program.

use std::fs;
use std::path::Path;
use std::process::Command;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md");

#[test]
fn the_documented_commands_are_those_of_the_program() {
    let output = Command::new(env!("CARGO_BIN_EXE_muster"))
        .arg("command-reference")
        .env_clear()
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let reference = String::from_utf8(output.stdout).unwrap();
    for command in [
        "## muster job submit",
        "## muster block-host",
        "## muster cluster status",
    ] {
        assert!(reference.contains(command), "{command}");
    }
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        fs::write(PAGE, &reference).unwrap();
    }
    let written = fs::read_to_string(Path::new(PAGE)).unwrap_or_default();
    assert!(
        written == reference,
        "docs/cli.md is outdated: UPDATE_GOLDENFILES=1 rewrites it"
    );
}
