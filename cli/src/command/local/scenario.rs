//! `muster scenario`: text scripts against the scheduling engine, without a cluster.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use muster_simulate::scenario::{Files, Outcome, Script, run};

use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, note, render_document};

/// Commands of `muster scenario`
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a script, and compare its results
    ///
    /// Runs the script's steps against the scheduling engine, audits every command, and prints the changes
    /// after each step. Results in the script (lines that begin with `>`) must be reproduced.
    /// docs/scenarios.md documents the language.
    Run(Run),
}

impl Verb {
    /// Runs the command.
    pub(crate) fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::Run(run) => run.run(options),
        }
    }
}

/// `muster scenario run`
#[derive(Debug, Args)]
#[command(after_help = "\
muster scenario run gang.txt
muster scenario run gang.txt --update     (writes the results into the script)
muster scenario run gang.txt -o jsonl     (a document for each step)")]
pub(crate) struct Run {
    /// The script
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write the results into the script instead of comparing them
    #[arg(long)]
    update: bool,
}

impl Run {
    /// Runs the command.
    pub(crate) fn run(self, options: &Options) -> Result<Exit, Failure> {
        let name = self.file.display().to_string();
        let text = read(&self.file).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
        let beside = ScriptFolder(self.file.parent().unwrap_or(Path::new("")).to_owned());
        let parsed = Script::parse(&text, &beside);
        let mut script = parsed.map_err(|error| {
            let place = format!("{name}:{}:{}", error.line, error.column);
            Failure::usage(format!("{place}: {}", error.message))
        })?;
        if self.update {
            script = script.without_results();
        }
        let outcome = run(&script);
        let updated = script.with_results(&outcome.results());
        if self.update && updated != text {
            fs::write(&self.file, &updated)
                .map_err(|error| Failure::new(format!("cannot write {name}: {error}")))?;
        }
        let screen = options.screen();
        screen.report(&match screen.format {
            Format::Table | Format::Wide | Format::Name => updated,
            format => documents(format, &outcome)?,
        })?;
        verdict(&name, &outcome)
    }
}

/// One document for each step.
fn documents(format: Format, outcome: &Outcome) -> Result<String, Failure> {
    let steps = outcome.steps.iter();
    let before = match format {
        Format::Yaml => "---\n",
        _ => "",
    };
    let texts: Result<Vec<String>, Failure> = steps
        .map(|step| render_document(format, step).map(|text| format!("{before}{text}")))
        .collect();
    Ok(texts?.concat())
}

fn verdict(name: &str, outcome: &Outcome) -> Result<Exit, Failure> {
    if outcome.failures.is_empty() {
        if outcome.cuts > 0 {
            note(&format!(
                "{} changes of leader, each with the same outcome",
                outcome.cuts
            ));
        }
        return Ok(Exit::Ok);
    }
    let failures = outcome.failures.iter();
    let lines = failures.map(|found| format!("{name}:{}: {}", found.line, found.failure));
    Err(Failure::list(lines.collect()))
}

/// Reads the files named by a script from the script's folder.
struct ScriptFolder(PathBuf);

impl Files for ScriptFolder {
    fn read(&self, path: &str) -> Result<String, String> {
        read(&self.0.join(path)).map_err(|error| error.to_string())
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    fs::read_to_string(path)
}
