//! `muster chaos sim`: whole clusters under faults, one per seed.

use std::io::{self, Write};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use muster_chaos::sim::faults::plan::{FaultSelection, Numbers};
use muster_chaos::sim::mutant::Mutant;
use muster_chaos::sim::scale::{Scale, Tempo};
use muster_chaos::sim::sweep::{SweepOptions, sweep};
use muster_chaos::sim::world::{WorldOptions, simulate};

use crate::command::local::demo::own_binary;
use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Format;

/// Maximum number of hosts of a simulated cluster.
const WORKERS_MAX: i64 = 1_000;

/// `muster chaos sim`
///
/// Each seed is a cluster of one, three or five replicas with hosts, users and faults, all in one
/// deterministic thread. Ends with 0 only if every promise held, the known bugs were found and, in 100 worlds
/// or more, every situation occurred. Fewer worlds in which some did not occur are no evidence. Every failure
/// is printed with the command that reproduces it.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 every promise held, the known bugs were found and, in 100 worlds or more, every situation occurred; 1 \
otherwise; 64 usage. Every failure is printed with the command that reproduces it. Output is streamed as \
text: only -o table is possible.")]
pub(crate) struct Sim {
    /// First seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Number of seeds
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Start the second half of the seeds here, for instance at a number drawn from a commit
    #[arg(long, value_name = "SEED")]
    second_half: Option<u64>,
    #[command(flatten)]
    world: WorldFlags,
    /// A line for every world, not only for those that fail
    #[arg(long)]
    all_lines: bool,
    /// Do not verify that the checkers find the known bugs
    #[arg(long)]
    skip_mutants: bool,
    /// Print a hash of the first seed's world and nothing else; a sweep requests it from another process
    #[arg(long, hide = true)]
    digest: bool,
}

/// Options of a world except its seed.
#[derive(Clone, Debug, Args)]
pub(crate) struct WorldFlags {
    /// Simulated seconds with faults in each cluster
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    faults_seconds: u64,
    /// Enable a known bug
    #[arg(long, value_name = "NAME", value_parser = mutant_parser())]
    mutant: Option<Mutant>,
    /// Only these faults and repairs of the drawn ones, as 3,7-9; none if the list is empty
    #[arg(long, value_name = "NUMBERS")]
    only_faults: Option<Numbers>,
    /// Jobs of each user; by default one in four seconds, or in 150 with the production tempo
    #[arg(long, value_name = "COUNT")]
    jobs: Option<u32>,
    /// Hosts of eight GPUs each; by default two to seven of different sizes, and in one world in 64 up to 200
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=WORKERS_MAX))]
    workers: Option<u32>,
    /// Pace: jobs of seconds and a fault every two, or as in production, with job run times as on Microsoft's
    /// Philly cluster
    #[arg(long, value_name = "NAME", default_value = Tempo::default().name(), value_parser = tempo_parser())]
    tempo: Tempo,
}

impl WorldFlags {
    /// The world of a seed.
    pub(super) fn world(&self, seed: u64) -> WorldOptions {
        WorldOptions {
            seed,
            faults_s: self.faults_seconds,
            mutant: self.mutant,
            faults: self.faults(),
            jobs: self.jobs,
            scale: self.scale(),
        }
    }

    const fn scale(&self) -> Scale {
        Scale {
            hosts: self.workers,
            tempo: self.tempo,
        }
    }

    fn faults(&self) -> FaultSelection {
        let only = self.only_faults.clone();
        only.map_or(FaultSelection::All, FaultSelection::Only)
    }
}

fn mutant_parser() -> impl TypedValueParser<Value = Mutant> {
    let names = PossibleValuesParser::new(Mutant::ALL.map(Mutant::name));
    names.try_map(|name| Mutant::named(&name).ok_or("unknown bug"))
}

fn tempo_parser() -> impl TypedValueParser<Value = Tempo> {
    let names = PossibleValuesParser::new(Tempo::ALL.map(Tempo::name));
    names.try_map(|name| Tempo::named(&name).ok_or("unknown tempo"))
}

impl Sim {
    /// Runs the command.
    pub(crate) fn run(self, connection: &Options) -> Result<Exit, Failure> {
        if connection.screen().format != Format::Table {
            return Err(Failure::usage(
                "a sweep streams text: -o supports only table",
            ));
        }
        let failed = |error| Failure::new(format!("cannot simulate: {error}"));
        let mut output = io::stdout();
        if self.digest {
            let report = simulate(&self.world.world(self.first)).map_err(failed)?;
            writeln!(output, "{:016x}", report.digest()).map_err(failed)?;
            return Ok(Exit::Ok);
        }
        let options = SweepOptions {
            first: self.first,
            seeds: self.seeds,
            second_half: self.second_half,
            faults_s: self.world.faults_seconds,
            all_lines: self.all_lines,
            mutants: if self.skip_mutants {
                Vec::new()
            } else {
                Mutant::ALL.to_vec()
            },
            mutant: self.world.mutant,
            faults: self.world.faults(),
            jobs: self.world.jobs,
            scale: self.world.scale(),
            program: Some(own_binary()?),
        };
        let report = sweep(options, &mut output)
            .and_then(|report| write!(output, "{report}").map(|()| report))
            .map_err(failed)?;
        Ok(if report.holds() {
            Exit::Ok
        } else {
            Exit::Error
        })
    }
}
