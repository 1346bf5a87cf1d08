//! `muster chaos shrink`: minimizes a failure of a simulation.

use std::io;
use std::path::PathBuf;

use clap::Args;
use muster_chaos::sim::results::shrink::{ShrinkOptions, shrink};

use crate::command::local::chaos::replay::{World, read_world};
use crate::command::local::chaos::sim::WorldFlags;
use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::{Failure, chain};

/// `muster chaos shrink`
///
/// Leaves out faults, repairs and users' jobs as long as a violation of the same kind is still found, until
/// nothing more can be left out. Prints the remaining world, its last scenes, and the command that reproduces
/// it; writes the world to a file, which `muster chaos replay` accepts even if the meaning of seeds changes.
#[derive(Debug, Args)]
pub(crate) struct Shrink {
    /// Seed of a world that fails, or a file with one
    #[arg(value_name = "SEED|FILE")]
    world: World,
    #[command(flatten)]
    flags: WorldFlags,
    /// Worlds that are run at most
    #[arg(long, default_value_t = 500, value_name = "COUNT")]
    runs: u64,
    /// File for the minimized world; by default shrunk-SEED.json
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Shrink {
    /// Runs the command.
    pub(crate) fn run(self, options: &Options) -> Result<Exit, Failure> {
        let world = read_world(&self.world, &self.flags)?;
        let default = PathBuf::from(format!("shrunk-{}.json", world.seed));
        let out = self.out.unwrap_or(default);
        let shrink_options = ShrinkOptions {
            world,
            runs_max: self.runs,
        };
        let failed = |error: &dyn std::error::Error| Failure::new(chain(error));
        let shrunk = shrink(&shrink_options, &mut io::stderr()).map_err(|error| failed(&error))?;
        let text = shrunk.script().write().map_err(|error| failed(&error))?;
        std::fs::write(&out, text + "\n")
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", out.display())))?;
        let replay = shrunk.replay(&out.display().to_string());
        options.screen().report(&format!("{shrunk}{replay}"))?;
        Ok(Exit::Ok)
    }
}
