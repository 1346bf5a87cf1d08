//! Allowed dependencies between crates, as in `docs/architecture.md`.

use toml::{Table, Value};

use crate::tidy::finding::Finding;

/// Workspace crates that each workspace crate may depend on. `ANY` means all of them.
const ALLOWED: [(&str, &[&str]); 26] = [
    ("muster-model", &[]),
    ("muster-health", &["muster-model"]),
    ("muster-engine", &["muster-health", "muster-model"]),
    // Its unit tests run the engine in virtual time.
    (
        "muster-planner",
        &["muster-engine", "muster-harness", "muster-model"],
    ),
    (
        "muster-control",
        &["muster-engine", "muster-health", "muster-model"],
    ),
    (
        "muster-harness",
        &[
            "muster-control",
            "muster-engine",
            "muster-health",
            "muster-model",
            "muster-planner",
        ],
    ),
    (
        "muster-simulate",
        &[
            "muster-control",
            "muster-engine",
            "muster-harness",
            "muster-health",
            "muster-model",
            "muster-planner",
        ],
    ),
    ("muster-service", &[]),
    ("muster-tls", &[]),
    // Its tests find a real etcd in the harness; cargo lets no other code of it depend on that.
    (
        "muster-etcd",
        &["muster-service", "muster-tests", "muster-tls"],
    ),
    (
        "muster-proto",
        &[
            "muster-engine",
            "muster-health",
            "muster-model",
            "muster-planner",
        ],
    ),
    ("muster-job-file", &["muster-model", "muster-proto"]),
    (
        "muster-client",
        &[
            "muster-etcd",
            "muster-model",
            "muster-proto",
            "muster-service",
            "muster-tls",
        ],
    ),
    (
        "muster-raft-store",
        &[
            "muster-engine",
            "muster-model",
            "muster-proto",
            "muster-tls",
        ],
    ),
    (
        "muster-scheduler",
        &[
            "muster-control",
            "muster-engine",
            "muster-etcd",
            "muster-harness",
            "muster-health",
            "muster-model",
            "muster-planner",
            "muster-proto",
            "muster-raft-store",
            "muster-service",
            "muster-tls",
        ],
    ),
    // Loaded once for every task: it stays small.
    ("muster-supervisor", &["muster-model"]),
    // Foreign code is loaded into it: it must not be part of an agent.
    ("muster-gpu-check", &["muster-model"]),
    (
        "muster-worker",
        &[
            "muster-control",
            "muster-engine",
            "muster-etcd",
            "muster-harness",
            "muster-health",
            "muster-model",
            "muster-proto",
            "muster-service",
            "muster-supervisor",
            "muster-tls",
        ],
    ),
    // The crate that wires everything together; types of the core and the wire pass through it.
    (
        "muster-cli",
        &[
            "muster-chaos",
            "muster-client",
            "muster-engine",
            "muster-gpu-check",
            "muster-health",
            "muster-job-file",
            "muster-model",
            "muster-proto",
            "muster-scheduler",
            "muster-service",
            "muster-simulate",
            "muster-tls",
            "muster-worker",
        ],
    ),
    ("muster-chaos", ANY),
    ("muster-bench", ANY),
    // The public API and the built binary: nothing from inside the replica or the agent.
    (
        "muster-tests",
        &[
            "muster-client",
            "muster-health",
            "muster-model",
            "muster-proto",
            "muster-service",
            "muster-tls",
        ],
    ),
    // It feeds the decoders of all crates.
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
                "muster-model",
                "[dependencies]\nmuster-proto = { workspace = true }\n"
            )
            .len(),
            1
        );
    }

    #[test]
    fn allowed_arrows_and_third_party_crates_pass() {
        let tables = "[dependencies]\nmuster-model = { workspace = true }\ntokio = \"1\"\n";
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
    fn an_unlisted_crate_is_found() {
        assert_eq!(findings("muster-new", "").len(), 1);
    }
}
