//! `muster task env`.

use std::collections::BTreeMap;

use clap::Args;
use muster_worker::supervisor::link::task_side::{self, SOCKET_VARIABLE};

use crate::command::local::task::failure;
use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, render_document};

/// Variables of a task other than those that begin with `MUSTER_`.
const OTHER_VARIABLES: [&str; 10] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
    "TORCHELASTIC_ERROR_FILE",
];

/// Prints the variables that Muster gives its tasks, as lines for a shell
#[derive(Debug, Args)]
pub(crate) struct Environment {}

impl Environment {
    /// Runs the command.
    pub(crate) fn run(self, options: &Options) -> Result<Exit, Failure> {
        // Set only inside a task, whatever other variables are set.
        task_side::variable(SOCKET_VARIABLE).map_err(failure)?;
        let is_ours = |name: &str| name.starts_with("MUSTER_") || OTHER_VARIABLES.contains(&name);
        let ours: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| is_ours(name))
            .collect();
        let screen = options.screen();
        screen.data(&match screen.format {
            Format::Name => ours.keys().map(|name| format!("{name}\n")).collect(),
            Format::Json | Format::Jsonl | Format::Yaml => render_document(screen.format, &ours)?,
            Format::Table | Format::Wide => ours
                .iter()
                .map(|(name, value)| format!("{name}={}\n", quoted(value)))
                .collect(),
        })?;
        Ok(Exit::Ok)
    }
}

/// Quotes a value for a shell.
fn quoted(value: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:,=@+".contains(letter);
    if value.chars().all(is_plain) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_for_a_shell() {
        assert_eq!(quoted("/a/b-1:2"), "/a/b-1:2");
        assert_eq!(quoted(""), "");
        assert_eq!(quoted("it's two words"), r"'it'\''s two words'");
    }
}
