//! Golden scripts: every script of `scripts/` reproduces the results recorded in it.
//!
//! `UPDATE=1 cargo test -p muster-simulate --test scenario scripts::` rewrites the results; review them as
//! you would review code. `ONLY=hived` runs those with it in their path; `SCRIPTS=findings` runs those of
//! another folder of the crate, without results.

use std::fs;
use std::path::{Path, PathBuf};

use muster_simulate::scenario::{Files, Script, run};

const CRATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");

/// Folder of the files that scripts name.
struct Folder(PathBuf);

impl Files for Folder {
    fn read(&self, path: &str) -> Result<String, String> {
        fs::read_to_string(self.0.join(path)).map_err(|error| error.to_string())
    }
}

/// Runs one script; returns its failure, if any.
fn check(path: &Path) -> Result<(), String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let with_name = |error: &dyn std::fmt::Display| format!("{name}: {error}");
    let text = fs::read_to_string(path).map_err(|error| with_name(&error))?;
    let files = Folder(path.parent().unwrap_or(path).to_owned());
    let script = Script::parse(&text, &files).map_err(|error| with_name(&error))?;
    let outcome = run(&script);
    let updated = script.with_results(&outcome.results());
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, &updated).map_err(|error| with_name(&error))?;
        let again = Script::parse(&updated, &files).map_err(|error| with_name(&error))?;
        return verdict(&name, &run(&again));
    }
    if !script.is_recorded() && std::env::var_os("SCRIPTS").is_none() {
        return Err(format!("{name}: no recorded results; run with UPDATE=1"));
    }
    verdict(&name, &outcome)
}

fn verdict(name: &str, outcome: &muster_simulate::scenario::Outcome) -> Result<(), String> {
    if outcome.failures.is_empty() {
        return Ok(());
    }
    let failures = outcome.failures.iter();
    let failures: Vec<String> = failures
        .map(|failure| format!("{name}: {failure}"))
        .collect();
    Err(failures.join("\n"))
}

fn scripts(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(scripts(&path));
        } else if path.extension().is_some_and(|extension| extension == "txt") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn every_script_gives_its_results() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let folder = std::env::var("SCRIPTS").unwrap_or_else(|_| "scripts".to_owned());
    let scripts = scripts(&Path::new(CRATE).join(&folder));
    assert!(!scripts.is_empty(), "no scripts in {folder}");
    let chosen = scripts
        .iter()
        .filter(|path| path.to_string_lossy().contains(&only));
    let complaints: Vec<String> = chosen.filter_map(|path| check(path).err()).collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n\n"));
}
