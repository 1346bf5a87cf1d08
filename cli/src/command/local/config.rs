//! `muster config`: settings files, without a cluster.

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use muster_scheduler::SchedulerConfig;
use muster_service::settings::{Loaded, Settings, default_file, load, reference};
use muster_worker::WorkerConfig;

use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::settings::failure;

/// Commands of `muster config`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Check a settings file: unknown options, wrong values, invalid combinations
    Check(Check),
    /// Print a settings file with all options at their defaults
    PrintDefault {
        /// The role
        role: Role,
    },
    /// Print a role's options as the Markdown table of docs/configuration.md
    Reference {
        /// The role
        role: Role,
    },
}

/// `muster config check`
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// The file: TOML, or JSON if it is named so
    file: PathBuf,
    /// The role of the settings; by default from the file's name (scheduler.toml, worker-gpu.toml)
    #[arg(long)]
    role: Option<Role>,
}

/// A role that has settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// `muster scheduler`
    Scheduler,
    /// `muster worker`
    Worker,
}

impl Verb {
    /// Runs the command.
    pub(crate) fn run(&self, options: &Options) -> Result<Exit, Failure> {
        let text = match self {
            Self::Check(check) => check.run()?,
            Self::PrintDefault {
                role: Role::Scheduler,
            } => default_file::<SchedulerConfig>(),
            Self::PrintDefault { role: Role::Worker } => default_file::<WorkerConfig>(),
            Self::Reference {
                role: Role::Scheduler,
            } => reference::<SchedulerConfig>(),
            Self::Reference { role: Role::Worker } => reference::<WorkerConfig>(),
        };
        options.screen().data(&text)?;
        Ok(Exit::Ok)
    }
}

impl Check {
    fn run(&self) -> Result<String, Failure> {
        // The role does not matter if the file cannot be read.
        if let Err(error) = File::open(&self.file) {
            let message = format!("cannot read {}: {error}", self.file.display());
            return Err(Failure::usage(message));
        }
        match self.role.map_or_else(|| role_of(&self.file), Ok)? {
            Role::Scheduler => check::<SchedulerConfig>(&self.file),
            Role::Worker => check::<WorkerConfig>(&self.file),
        }
    }
}

/// The role in a file's name.
fn role_of(file: &Path) -> Result<Role, Failure> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    match (name.contains("scheduler"), name.contains("worker")) {
        (true, false) => Ok(Role::Scheduler),
        (false, true) => Ok(Role::Worker),
        _ => {
            let message = format!("cannot infer the role from the file name `{name}`");
            Err(Failure::usage(message).help("give --role scheduler, or --role worker"))
        }
    }
}

/// Reads a file as a role would, without variables and flags.
fn check<S: Settings>(file: &Path) -> Result<String, Failure> {
    let read: Loaded<S> = load(Some(file), &[]).map_err(|problems| failure(&problems))?;
    let (name, role) = (file.display(), S::ROLE);
    let mut changed = read.changed().join(", ");
    if changed.is_empty() {
        changed.push_str("none");
    }
    Ok(format!(
        "{name}: valid for `muster {role}`; changed from the defaults: {changed}\n"
    ))
}
