//! The schema of the documents is the documented one, and every documented command is part of it.
#![expect(clippy::unwrap_used, reason = "a failed test should panic")]

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

const SCHEMA: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/cli-json-schema.json"
);
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli-json.md");

/// Commands whose documents are defined elsewhere: configuration files, notifications of a task's supervisor, and
/// results of simulations.
const ELSEWHERE: [&str; 5] = [
    "gpu check",
    "topology get",
    "task watch",
    "scenario run",
    "simulate",
];
/// Commands that print text or raw output.
const TEXT: [&str; 1] = ["job exec"];

#[test]
fn the_documented_schema_matches_the_documents() {
    let schema = muster_documents::schema();
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        let text = serde_json::to_string_pretty(&schema).unwrap();
        fs::write(SCHEMA, text + "\n").unwrap();
    }
    let written = fs::read_to_string(SCHEMA).unwrap_or_default();
    let written: Value = serde_json::from_str(&written).unwrap_or_default();
    assert!(
        written == schema,
        "docs/cli-json-schema.json is outdated: UPDATE_GOLDENFILES=1 rewrites it"
    );
}

#[test]
fn every_documented_command_has_a_schema() {
    let page = fs::read_to_string(PAGE).unwrap();
    let table = page.split("## Documents").nth(1).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let commands = rows
        .flat_map(|row| row.split('|').nth(1).unwrap().split('`'))
        .map(|command| command.trim().trim_end_matches(" NAME"));
    let documented: BTreeSet<&str> = commands
        .filter(|command| command.starts_with(|first: char| first.is_ascii_lowercase()))
        .filter(|command| !ELSEWHERE.contains(command) && !TEXT.contains(command))
        .collect();
    let schema = muster_documents::schema();
    let commands = schema["commands"].as_object().unwrap();
    let described: BTreeSet<&str> = commands.keys().map(String::as_str).collect();
    assert_eq!(documented, described);
}
