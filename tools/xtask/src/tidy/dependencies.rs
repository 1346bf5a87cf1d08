//! Allowed dependencies between crates, as in `docs/architecture.md`.

use toml::{Table, Value};

use crate::tidy::finding::Finding;

/// Workspace crates that each workspace crate may depend on. `ANY` means all of them.
const ALLOWED: [(&str, &[&str]); 26] = [
    ("muster-core", &[]),
    ("muster-scenario", &["muster-core"]),
    ("muster-simulate", &["muster-core"]),
    ("muster-proto", &["muster-core"]),
    ("muster-job-file", &["muster-core", "muster-proto"]),
    ("muster-settings", &[]),
    ("muster-exporter", &[]),
    ("muster-systemd", &[]),
    ("muster-tls", &[]),
    ("muster-tracing", &[]),
    // Its tests find a real etcd in the harness; cargo cannot restrict that to tests.
    (
        "muster-etcd",
        &["muster-settings", "muster-tests", "muster-tls"],
    ),
    ("muster-logging", &["muster-settings"]),
    (
        "muster-raft-store",
        &["muster-core", "muster-proto", "muster-tls"],
    ),
    (
        "muster-client",
        &[
            "muster-core",
            "muster-etcd",
            "muster-proto",
            "muster-tls",
            "muster-tracing",
        ],
    ),
    // Loaded once for every task: it stays small.
    ("muster-supervisor", &["muster-core"]),
    (
        "muster-worker",
        &[
            "muster-core",
            "muster-etcd",
            "muster-exporter",
            "muster-logging",
            "muster-proto",
            "muster-settings",
            "muster-supervisor",
            "muster-systemd",
            "muster-tls",
            "muster-tracing",
        ],
    ),
    (
        "muster-scheduler",
        &[
            "muster-core",
            "muster-etcd",
            "muster-exporter",
            "muster-logging",
            "muster-proto",
            "muster-raft-store",
            "muster-settings",
            "muster-systemd",
            "muster-tls",
            "muster-tracing",
        ],
    ),
    // The crate that wires everything together; types of the core and the wire pass through it.
    (
        "muster-cli",
        &[
            "muster-client",
            "muster-scheduler",
            "muster-worker",
            "muster-chaos",
            "muster-simulate",
            "muster-core",
            "muster-proto",
            "muster-scenario",
            "muster-settings",
            "muster-gpu-check",
            "muster-job-file",
            "muster-logging",
            "muster-tls",
            "muster-tracing",
        ],
    ),
    // It loads foreign code, so it must not be part of an agent.
    ("muster-gpu-check", &["muster-core"]),
    ("muster-chaos", ANY),
    ("muster-bench", ANY),
    // The public API and the built binary: nothing from inside the replica or the agent.
    (
        "muster-tests",
        &[
            "muster-client",
            "muster-core",
            "muster-proto",
            "muster-tls",
            "muster-tracing",
        ],
    ),
    // It feeds all decoders.
    ("muster-fuzz", ANY),
    // In a workspace of its own.
    ("muster-fuzzers", &["muster-fuzz"]),
    // A job uses Muster only through its environment.
    ("muster-trainer", &[]),
    ("xtask", &[]),
];
const ANY: &[&str] = &["*"];
const TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Checks one crate's manifest.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => {
            return vec![Finding::new(
                path,
                1,
                "dependencies",
                format!("not TOML: {error}"),
            )];
        }
    };
    let name = manifest
        .get("package")
        .and_then(|package| package.get("name"))
        .and_then(Value::as_str);
    let Some(name) = name else { return Vec::new() }; // the workspace itself
    let Some((_, allowed)) = ALLOWED.iter().find(|(member, _)| *member == name) else {
        let message = format!("`{name}` is not in xtask's table of allowed dependencies");
        return vec![Finding::new(path, 1, "dependencies", message)];
    };
    let ours = dependencies(&manifest)
        .into_iter()
        .filter(|(_, package)| is_ours(package));
    ours.filter(|(_, package)| *allowed != ANY && !allowed.contains(&package.as_str()))
        .map(|(key, package)| {
            let message = format!("`{name}` may not depend on `{package}` (docs/architecture.md)");
            Finding::new(path, line_of(text, &key), "dependencies", message)
        })
        .collect()
}

/// Every dependency of every kind and target: its key in the manifest and the package it means.
fn dependencies(manifest: &Table) -> Vec<(String, String)> {
    let targets = manifest
        .get("target")
        .and_then(Value::as_table)
        .into_iter()
        .flat_map(Table::values);
    let places = targets.filter_map(Value::as_table).chain([manifest]);
    let tables = places.flat_map(|place| {
        TABLES
            .iter()
            .filter_map(|kind| place.get(*kind)?.as_table())
    });
    tables
        .flatten()
        .map(|(key, value)| {
            let package = value.get("package").and_then(Value::as_str).unwrap_or(key);
            (key.clone(), package.to_owned())
        })
        .collect()
}

fn is_ours(package: &str) -> bool {
    ALLOWED.iter().any(|(member, _)| *member == package)
}

/// The line that names `key`.
fn line_of(text: &str, key: &str) -> usize {
    text.lines()
        .position(|line| line.contains(key) && line.contains('=') && !line.starts_with("name"))
        .map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, tables: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{name}\"\n{tables}");
        check("a/Cargo.toml", &text)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn forbidden_arrows_are_found_in_every_table() {
        let dependency = "muster-raft-store = { workspace = true }\n";
        for table in [
            "[dependencies]",
            "[dev-dependencies]",
            "[build-dependencies]",
            "[target.'cfg(unix)'.dependencies]",
        ] {
            assert_eq!(
                findings("muster-worker", &format!("{table}\n{dependency}")),
                [
                    "a/Cargo.toml:4: dependencies: `muster-worker` may not depend on `muster-raft-store` \
                     (docs/architecture.md)"
                ],
                "{table}"
            );
        }
        let renamed = "[dependencies]\nstore = { package = \"muster-raft-store\", path = \"../raft-store\" }\n";
        assert_eq!(findings("muster-client", renamed).len(), 1);
        assert_eq!(
            findings(
                "muster-core",
                "[dependencies]\nmuster-proto = { workspace = true }\n"
            )
            .len(),
            1
        );
    }

    #[test]
    fn allowed_arrows_and_other_peoples_crates_pass() {
        let tables = "[dependencies]\nmuster-core = { workspace = true }\ntokio = \"1\"\n";
        assert!(findings("muster-worker", tables).is_empty());
        assert!(
            findings(
                "muster-chaos",
                "[dependencies]\nmuster-raft-store = { workspace = true }\n"
            )
            .is_empty()
        );
        assert!(check("Cargo.toml", "[workspace]\nmembers = []\n").is_empty());
    }

    #[test]
    fn a_crate_nobody_thought_of_is_found() {
        assert_eq!(findings("muster-new", "").len(), 1);
    }
}
