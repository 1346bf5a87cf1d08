//! `muster completion`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::arguments::CommandLine;
use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;

/// Prints a completion script: `source <(muster completion bash)`.
#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// The shell
    shell: Shell,
}

impl Completion {
    /// Runs the command.
    pub(crate) fn run(self, options: &Options) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        let mut grammar = CommandLine::command();
        clap_complete::generate(self.shell, &mut grammar, "muster", &mut script);
        options.screen().bytes(&script)?;
        Ok(Exit::Ok)
    }
}
