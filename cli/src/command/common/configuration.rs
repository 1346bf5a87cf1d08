//! Applying a configuration file: parsed strictly, sent as a whole, and refusals are shown at their position
//! in the file.

use std::io::Read;

use clap::Args;
use muster_client::ClientError;
use muster_job_file::strict_yaml::{FileError, Positions, parse_one};
use muster_model::limits::CONFIGURATION_BYTES_MAX;
use serde::de::DeserializeOwned;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, Screen, render_document};

/// Largest configuration file: YAML takes several times the size of the message.
const FILE_BYTES_MAX: u64 = 8 * CONFIGURATION_BYTES_MAX as u64;

/// Options of every `apply`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ApplyOptions {
    /// The complete configuration in YAML or JSON, `-` for standard input; objects that it does not contain
    /// are removed
    file: String,
    /// Change nothing; print what would change
    #[arg(long)]
    dry_run: bool,
}

/// A parsed file with its text, so that refusals can be located in it.
pub(crate) struct ConfigFile<T> {
    /// The parsed value.
    pub(crate) value: T,
    name: String,
    text: String,
}

impl ApplyOptions {
    /// Whether this is a dry run.
    pub(crate) fn dry_run(&self) -> bool {
        self.dry_run
    }

    /// Reads the file.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<ConfigFile<T>, Failure> {
        ConfigFile::read(&self.file)
    }
}

impl<T: DeserializeOwned> ConfigFile<T> {
    /// Reads a file, or standard input if the name is `-`.
    pub(crate) fn read(file: &str) -> Result<Self, Failure> {
        let (name, text) = read_file(file, FILE_BYTES_MAX)?;
        let value = parse_one(&name, &text).map_err(|error| unusable(vec![error]))?;
        Ok(Self { value, name, text })
    }
}

impl<T> ConfigFile<T> {
    /// Locates broken rules in the file, given as pairs of field and rule.
    pub(crate) fn locate<'a>(
        &self,
        broken: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Vec<FileError> {
        let places = Positions::of(&self.text);
        let errors = broken.map(|(field, rule)| FileError {
            file: self.name.clone(),
            position: places.find(field),
            field: field.to_owned(),
            message: rule.to_owned(),
        });
        errors.collect()
    }

    /// Converts a refusal of the cluster, with each broken rule at its position in the file.
    pub(crate) fn rejection(&self, error: ClientError) -> Failure {
        let Some(refusal) = error.refusal().filter(|it| !it.violations.is_empty()) else {
            return error.into();
        };
        let broken = refusal.violations.iter();
        let errors = self.locate(broken.map(|it| (it.field.as_str(), it.rule.as_str())));
        let lines = errors.iter().map(FileError::to_string).collect();
        Failure::list(lines).help("nothing was changed")
    }
}

/// Errors of a file that was not sent.
pub(crate) fn unusable(errors: Vec<FileError>) -> Failure {
    let lines = errors.iter().map(FileError::to_string).collect();
    Failure::list(lines)
        .help("nothing was sent; docs/queues-and-topology.md describes the format")
        .exiting(Exit::Usage)
}

/// The name and text of a file, or of standard input.
pub(crate) fn read_file(file: &str, bytes_max: u64) -> Result<(String, String), Failure> {
    let unreadable = |error: std::io::Error| Failure::usage(format!("cannot read {file}: {error}"));
    let mut text = String::new();
    let (name, read) = if file == "-" {
        let stdin = std::io::stdin().lock();
        let read = stdin.take(bytes_max + 1).read_to_string(&mut text);
        ("<stdin>".to_owned(), read)
    } else {
        let open = std::fs::File::open(file).map_err(unreadable)?;
        let read = open.take(bytes_max + 1).read_to_string(&mut text);
        (file.to_owned(), read)
    };
    read.map_err(unreadable)?;
    if text.len() as u64 > bytes_max {
        let message = format!("{name} is over the limit of {bytes_max} bytes (FILE_BYTES_MAX)");
        return Err(Failure::usage(message));
    }
    Ok((name, text))
}

/// Prints a configuration in a form that can be edited and applied again: YAML unless a machine-readable
/// format is requested.
pub(crate) fn print_file<T: serde::Serialize>(screen: &Screen, value: &T) -> Result<(), Failure> {
    let format = match screen.format {
        Format::Table | Format::Wide | Format::Name => Format::Yaml,
        format => format,
    };
    screen.data(&render_document(format, value)?)
}
