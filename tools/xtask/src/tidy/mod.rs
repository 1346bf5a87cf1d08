//! Project rules, checked over every file of the repository.

mod build;
mod contributing;
mod dashboards;
mod finding;
mod length;
mod machine;
mod markdown;
mod module_docs;
mod source;
mod todo;
mod words;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use self::finding::Finding;
use self::source::Source;

/// Result of a check of the repository.
#[derive(Debug)]
pub(crate) struct Report {
    /// Text files that were read.
    pub(crate) files: usize,
    /// Breaches of a rule, by path and line.
    pub(crate) findings: Vec<Finding>,
    /// Files and functions longer than recommended, by path and line.
    pub(crate) warnings: Vec<Finding>,
}

/// A text file of the repository; paths are relative to its root.
#[derive(Debug)]
struct TextFile {
    path: String,
    text: String,
}

/// Checks all rules over the repository at `root`.
pub(crate) fn check(root: &Path) -> Result<Report> {
    let files = read(root)?;
    let mut findings: Vec<Finding> = files.iter().flat_map(check_text).collect();
    let mut warnings = Vec::new();
    findings.extend(check_rust(&files, &mut warnings));
    findings.extend(contributing::check(&files));
    findings.extend(dashboards::check(&files)?);
    findings.extend(build::check_profile(&files));
    findings.extend(build::check_units(root)?);
    findings.sort();
    warnings.sort();
    Ok(Report {
        files: files.len(),
        findings,
        warnings,
    })
}

/// The rules for any text.
fn check_text(file: &TextFile) -> Vec<Finding> {
    let TextFile { path, text } = file;
    let mut findings = todo::check(path, text);
    findings.extend(machine::check(path, text));
    findings.extend(words::check(path, text));
    if path.ends_with(".md") {
        findings.extend(markdown::check(path, text));
    }
    findings
}

/// The rules for Rust.
fn check_rust(files: &[TextFile], warnings: &mut Vec<Finding>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut sources = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        match Source::parse(&file.path, &file.text) {
            Ok(source) => sources.push(source),
            Err(error) => {
                let line = error.span().start().line;
                findings.push(Finding::new(&file.path, line, "syntax", error.to_string()));
            }
        }
    }
    let test_modules: BTreeSet<String> = sources.iter().flat_map(Source::test_modules).collect();
    for source in &mut sources {
        source.mark_tests(&test_modules);
    }
    for source in &sources {
        warnings.extend(length::check(source));
        findings.extend(module_docs::check(source));
    }
    findings
}

/// Reads every text file that is committed or about to be.
fn read(root: &Path) -> Result<Vec<TextFile>> {
    let listing = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .context("run git ls-files")?;
    let errors = String::from_utf8_lossy(&listing.stderr);
    ensure!(listing.status.success(), "git ls-files failed: {errors}");
    let names = String::from_utf8(listing.stdout).context("a path is not UTF-8")?;
    let mut files = Vec::new();
    for path in names
        .split('\0')
        .filter(|path| !path.is_empty() && root.join(path).is_file())
    {
        let bytes = fs::read(root.join(path)).with_context(|| format!("read {path}"))?;
        // Fixtures of frozen bytes are not text.
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(TextFile {
                path: path.to_owned(),
                text,
            });
        }
    }
    Ok(files)
}
