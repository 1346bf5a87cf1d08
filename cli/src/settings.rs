//! Settings of a role on the command line: a file, and a flag and a variable for every option.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::path::PathBuf;

use clap::builder::ArgAction;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use muster_scheduler::SchedulerConfig;
use muster_service::settings::{
    Kind, Loaded, LoggingSettings, OptionValue, Origin, Problem, Problems, Settings,
    SettingsOption, TracingSettings, load, options,
};
use muster_worker::WorkerConfig;

use crate::exit::Exit;
use crate::failure::Failure;

/// Id of the argument with the file.
const FILE: &str = "settings-file";

/// A role that runs as a service.
pub(crate) trait Service: Settings + Clone + Send + Sync + 'static {
    /// Logging settings.
    fn logging(&self) -> &LoggingSettings;

    /// Tracing settings.
    fn tracing(&self) -> &TracingSettings;

    /// Service name and instance, for trace spans.
    fn identity(&self) -> (&'static str, String);
}

impl Service for SchedulerConfig {
    fn logging(&self) -> &LoggingSettings {
        &self.logging
    }

    fn tracing(&self) -> &TracingSettings {
        &self.tracing
    }

    fn identity(&self) -> (&'static str, String) {
        ("muster-scheduler", self.replica_id.to_string())
    }
}

impl Service for WorkerConfig {
    fn logging(&self) -> &LoggingSettings {
        &self.logging
    }

    fn tracing(&self) -> &TracingSettings {
        &self.tracing
    }

    fn identity(&self) -> (&'static str, String) {
        let name = self.name.clone().unwrap_or_else(machine_name);
        ("muster-worker", name)
    }
}

/// Default name of a worker.
fn machine_name() -> String {
    let named = std::fs::read_to_string("/proc/sys/kernel/hostname");
    named.unwrap_or_default().trim().to_owned()
}

/// Sources of a role's settings.
#[derive(Clone, Debug)]
pub(crate) struct Source<S> {
    file: Option<PathBuf>,
    given: Vec<OptionValue>,
    role: PhantomData<S>,
}

impl<S: Settings> Source<S> {
    /// Reads the settings now.
    pub(crate) fn load(&self) -> Result<Loaded<S>, Failure> {
        load(self.file.as_deref(), &self.given).map_err(|problems| failure(&problems))
    }

    /// Adds values of shortcut flags.
    pub(crate) fn with(mut self, given: impl IntoIterator<Item = OptionValue>) -> Self {
        self.given.extend(given);
        self
    }
}

/// Error for invalid settings, with a pointer to the description of all options.
pub(crate) fn failure(problems: &Problems) -> Failure {
    let role = problems.role;
    let lines = problems.problems.iter().map(ToString::to_string);
    Failure::list(lines.collect())
        .exiting(Exit::Usage)
        .help(format!("`muster config print-default {role}` shows every option; docs/configuration.md describes them"))
}

/// The flags of a role's settings.
#[derive(Clone, Debug)]
pub(crate) struct SettingsArguments<S> {
    file: Option<PathBuf>,
    given: Result<Vec<OptionValue>, Problem>,
    role: PhantomData<S>,
}

impl<S: Settings> SettingsArguments<S> {
    /// The sources of the settings.
    pub(crate) fn source(self) -> Result<Source<S>, Failure> {
        let given = self.given.map_err(|problem| {
            failure(&Problems {
                role: S::ROLE,
                problems: vec![problem],
            })
        })?;
        Ok(Source {
            file: self.file,
            given,
            role: PhantomData,
        })
    }
}

impl<S: Settings> Args for SettingsArguments<S> {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new(FILE)
            .long("config")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("Settings file in TOML; overridden by variables, and both by flags");
        command.arg(file).args(options::<S>().iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: Settings> FromArgMatches for SettingsArguments<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = options::<S>();
        let given = given.iter().filter_map(|option| given_for(option, matches));
        Ok(Self {
            file: matches.get_one::<PathBuf>(FILE).cloned(),
            given: given.collect(),
            role: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The flag of an option. Those of nested options are omitted from the short help.
fn argument(option: &SettingsOption) -> Arg {
    let (value_name, is_many) = match &option.kind {
        Kind::Truth => ("true|false".to_owned(), false),
        Kind::Number => ("NUMBER".to_owned(), false),
        Kind::Text => ("TEXT".to_owned(), false),
        Kind::Keyword(keywords) => (keywords.join("|"), false),
        Kind::Texts => ("A,B".to_owned(), true),
        Kind::Map => ("NAME=VALUE".to_owned(), true),
        Kind::Other => ("TOML".to_owned(), false),
    };
    let argument = Arg::new(id(option))
        .long(option.flag.clone())
        .env(OsStr::new(&option.variable).to_owned())
        .hide_env_values(true)
        .value_name(value_name)
        .action(if is_many {
            ArgAction::Append
        } else {
            ArgAction::Set
        })
        // `--insecure` alone means true.
        .num_args(if option.kind == Kind::Truth { 0..=1 } else { 1..=1 })
        .default_missing_value("true")
        .hide_short_help(option.key.contains('.'))
        .help(option.text.trim_end_matches('.').to_owned());
    match &option.alias {
        Some(alias) => argument.visible_alias(alias.clone()),
        None => argument,
    }
}

/// Prefixed, since other arguments may have the name of an option's key.
fn id(option: &SettingsOption) -> String {
    format!("settings.{}", option.key)
}

fn given_for(
    option: &SettingsOption,
    matches: &ArgMatches,
) -> Option<Result<OptionValue, Problem>> {
    let id = id(option);
    let values: Vec<String> = matches.get_many::<String>(&id)?.cloned().collect();
    let origin = match matches.value_source(&id) {
        Some(ValueSource::EnvVariable) => Origin::Variable(option.variable.clone()),
        _ => Origin::Flag(format!("--{}", option.flag)),
    };
    Some(OptionValue::read(option, &values, origin))
}
