//! Check that `make build` and `make test` share every compilation unit, and that every member has its
//! settings in the profile `dev`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use toml::{Table, Value};

use crate::tidy::TextFile;
use crate::tidy::finding::Finding;

/// Arguments of cargo in `make build` and `make test`.
const BUILD: &[&str] = &["build", "--workspace", "--bins", "--examples"];
const TEST: &[&str] = &["test", "--workspace", "--no-run"];
const WORKSPACE: &str = "Cargo.toml";

/// cargo's build plan.
#[derive(Debug, Deserialize)]
struct UnitGraph {
    units: Vec<Unit>,
}

/// One compiler invocation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Unit {
    pkg_id: String,
    mode: String,
    features: Vec<String>,
    target: Target,
    profile: Profile,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// Profile settings that make a unit a different one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Profile {
    opt_level: String,
    debug_assertions: bool,
    overflow_checks: bool,
}

/// Compares the units of `make build` and `make test` in the workspace at `root`.
pub(crate) fn check_units(root: &Path) -> Result<Vec<Finding>> {
    let (build, test) = (plan(root, BUILD)?, plan(root, TEST)?);
    Ok(compiled_twice(&build, &test))
}

fn plan(root: &Path, arguments: &[&str]) -> Result<UnitGraph> {
    let output = Command::new("cargo")
        .args(arguments)
        .args(["--locked", "--unit-graph", "-Zunstable-options"])
        // The plan is an unstable output of cargo; the build itself is not affected.
        .env("RUSTC_BOOTSTRAP", "1")
        .current_dir(root)
        .output()
        .context("run cargo")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo gives no plan: {errors}");
    serde_json::from_slice(&output.stdout).context("read cargo's plan")
}

/// Units of `test` that `build` compiles with other features or another profile.
fn compiled_twice(build: &UnitGraph, test: &UnitGraph) -> Vec<Finding> {
    let built: BTreeSet<&Unit> = build.units.iter().collect();
    let known: BTreeSet<_> = built
        .iter()
        .map(|unit| (&unit.pkg_id, &unit.target))
        .collect();
    let differing = test
        .units
        .iter()
        .filter(|unit| unit.mode == "build" && known.contains(&(&unit.pkg_id, &unit.target)))
        .filter(|unit| !built.contains(unit));
    let names: BTreeSet<_> = differing
        .map(|unit| (unit.target.name.as_str(), unit.features.join(",")))
        .collect();
    names
        .into_iter()
        .map(|(name, features)| {
            let message = format!(
                "`make test` compiles {name} again, with features [{features}]: name them where `make build` sees them"
            );
            Finding::new(WORKSPACE, 1, "build", message)
        })
        .collect()
}

/// Checks that the profile `dev` has settings for every member: otherwise it is built as a dependency,
/// without assertions.
pub(crate) fn check_profile(files: &[TextFile]) -> Vec<Finding> {
    let manifest = |path: &str| -> Option<Table> {
        let file = files.iter().find(|file| file.path == path)?;
        file.text.parse().ok()
    };
    let Some(workspace) = manifest(WORKSPACE) else {
        return Vec::new(); // refused by cargo itself
    };
    let settings = lookup(&workspace, &["profile", "dev", "package"]).and_then(Value::as_table);
    let members = lookup(&workspace, &["workspace", "members"])
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    members
        .filter_map(|member| manifest(&format!("{member}/{WORKSPACE}")))
        .filter_map(|member| {
            let name = lookup(&member, &["package", "name"])?.as_str()?.to_owned();
            let own = settings.and_then(|settings| settings.get(&name));
            let is_checked = ["debug-assertions", "overflow-checks"]
                .iter()
                .all(|key| own.and_then(|own| own.get(*key)) == Some(&Value::Boolean(true)));
            let message =
                format!("[profile.dev.package.{name}] must turn assertions and overflow checks on");
            (!is_checked).then(|| Finding::new(WORKSPACE, 1, "build", message))
        })
        .collect()
}

fn lookup<'a>(table: &'a Table, keys: &[&str]) -> Option<&'a Value> {
    let (first, rest) = keys.split_first()?;
    let value = table.get(*first)?;
    match rest {
        [] => Some(value),
        rest => lookup(value.as_table()?, rest),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    fn unit(name: &str, mode: &str, features: &[&str]) -> Unit {
        Unit {
            pkg_id: format!("{name} 1.0.0"),
            mode: mode.to_owned(),
            features: features.iter().map(ToString::to_string).collect(),
            target: Target {
                name: name.to_owned(),
                kind: vec!["lib".to_owned()],
            },
            profile: Profile {
                opt_level: "1".to_owned(),
                debug_assertions: false,
                overflow_checks: false,
            },
        }
    }

    fn found(build: Vec<Unit>, test: Vec<Unit>) -> Vec<String> {
        let found = compiled_twice(&UnitGraph { units: build }, &UnitGraph { units: test });
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_crate_that_tests_compile_with_other_features_is_found() {
        let build = vec![
            unit("memchr", "build", &["std"]),
            unit("core", "build", &[]),
        ];
        let mut test = build.clone();
        test.push(unit("core", "test", &[]));
        test.push(unit("proptest", "build", &["std"]));
        assert!(found(build.clone(), test.clone()).is_empty());
        test.push(unit("memchr", "build", &["std", "use_std"]));
        let found = found(build, test);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("memchr again, with features [std,use_std]"),
            "{found:?}"
        );
    }

    #[test]
    fn a_member_without_checks_in_the_profile_is_found() {
        let file = |path: &str, text: &str| TextFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let member = file("core/Cargo.toml", "[package]\nname = \"muster-core\"\n");
        let workspace = "[workspace]\nmembers = [\"core\"]\n";
        let checked =
            "[profile.dev.package.muster-core]\ndebug-assertions = true\noverflow-checks = true\n";
        let with = |profile: &str| {
            let text = format!("{workspace}{profile}");
            check_profile(&[
                file("Cargo.toml", &text),
                file("core/Cargo.toml", &member.text),
            ])
        };
        assert!(with(checked).is_empty());
        assert_eq!(with("").len(), 1);
        let half = checked.replace("overflow-checks = true\n", "");
        assert_eq!(with(&half).len(), 1);
        let parsed: Table = half.parse().unwrap();
        assert!(lookup(&parsed, &["profile", "dev"]).is_some());
    }
}
