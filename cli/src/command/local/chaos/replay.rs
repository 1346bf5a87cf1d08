//! `muster chaos replay`: runs a simulated cluster again and steps through its events.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::{self, BufRead as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use muster_chaos::sim::record::{Filter, Record, Scene, Stepper, describe, difference};
use muster_chaos::sim::script::Script;
use muster_chaos::sim::world::{WorldOptions, record};
use muster_model::ids::{JobId, Revision};

use crate::command::local::chaos::sim::WorldFlags;
use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::output::{Format, Screen, render_documents};

/// Scenes shown by default.
const SCENES_SHOWN: usize = 40;
/// Milliseconds per second.
const SECOND_MS: f64 = 1_000.0;

/// `muster chaos replay`
///
/// Shows the last scenes before the first violation, or selected ones: faults and repairs, changes of leader,
/// commands as they were applied, events, calls of users and their answers, processes of tasks. With --step
/// it waits for commands: n, p, a, v, g, s, d, q; h explains them. Ends with 0 if no promise was broken, with
/// 1 otherwise.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// Seed of a world, or a file that `muster chaos shrink` wrote
    #[arg(value_name = "SEED|FILE")]
    world: World,
    #[command(flatten)]
    flags: WorldFlags,
    /// Only from this time on
    #[arg(long, value_name = "SECONDS")]
    from: Option<f64>,
    /// Only until this time
    #[arg(long, value_name = "SECONDS")]
    until: Option<f64>,
    /// Only events of this node: replica-1, node03, user-0
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Only events of this job
    #[arg(long, value_name = "ID")]
    job: Option<JobId>,
    /// Only the last scenes; 40 if no filter is given
    #[arg(long, value_name = "COUNT")]
    last: Option<usize>,
    /// The state at this revision instead
    #[arg(long, value_name = "REVISION", conflicts_with = "step")]
    state: Option<u64>,
    /// The differences between two revisions instead, as 40..57
    #[arg(long, value_name = "A..B", conflicts_with_all = ["step", "state"])]
    diff: Option<Span>,
    /// Step through the scenes by commands on standard input
    #[arg(long)]
    step: bool,
}

/// A world: a number is a seed, anything else a file.
#[derive(Clone, Debug)]
pub(crate) enum World {
    /// A seed.
    Seed(u64),
    /// A file.
    File(PathBuf),
}

impl FromStr for World {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let seed = text.parse().map(Self::Seed);
        Ok(seed.unwrap_or_else(|_| Self::File(PathBuf::from(text))))
    }
}

/// Two revisions.
#[derive(Clone, Copy, Debug)]
struct Span(Revision, Revision);

impl FromStr for Span {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once("..").and_then(|(from, to)| {
            let number = |text: &str| text.trim().parse().ok().map(Revision);
            Some(Self(number(from)?, number(to)?))
        });
        numbers.ok_or("two revisions are written as 40..57")
    }
}

/// The world of a seed or of a file. A file contains all options.
pub(super) fn read_world(world: &World, flags: &WorldFlags) -> Result<WorldOptions, Failure> {
    let path = match world {
        World::Seed(seed) => return Ok(flags.world(*seed)),
        World::File(path) => path,
    };
    let failed = |error: &dyn std::error::Error| {
        let (path, why) = (path.display(), chain(error));
        Failure::new(format!("cannot read the world in {path}: {why}"))
    };
    let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => neither_seed_nor_file(path),
        _ => failed(&error),
    })?;
    let script = Script::read(&text).map_err(|error| failed(&error).exiting(Exit::Usage))?;
    Ok(script.options())
}

fn neither_seed_nor_file(world: &Path) -> Failure {
    let world = world.display();
    Failure::usage(format!("{world} is neither a seed nor a file")).help(
        "a seed is a number that `muster chaos sim` printed; `muster chaos shrink` writes files",
    )
}

impl Replay {
    /// Runs the command.
    pub(crate) fn run(self, options: &Options) -> Result<Exit, Failure> {
        let world = read_world(&self.world, &self.flags)?;
        let screen = options.screen();
        let (report, record) =
            record(&world).map_err(|error| Failure::new(format!("cannot simulate: {error}")))?;
        if let Some(revision) = self.state {
            screen.report(&state_at(&record, Revision(revision))?)?;
        } else if let Some(Span(from, to)) = self.diff {
            screen.report(&changed(&record, from, to)?)?;
        } else {
            let filter = self.filter();
            let scenes = filter.select(&record);
            if self.step {
                step(&record, scenes, &screen)?;
            } else {
                show(&scenes, &screen)?;
            }
        }
        if record.dropped() > 0 {
            let dropped = record.dropped();
            screen.progress(&format!(
                "{dropped} scenes were dropped (limit of kept scenes)"
            ));
        }
        screen.progress(&report.to_string());
        Ok(if report.violations.is_empty() {
            Exit::Ok
        } else {
            Exit::Error
        })
    }

    fn filter(&self) -> Filter {
        let ms = |seconds: f64| (seconds.max(0.0) * SECOND_MS) as u64;
        let filter = Filter {
            from_ms: self.from.map(ms),
            until_ms: self.until.map(ms),
            node: self.node.clone(),
            job: self.job,
            last: self.last,
        };
        // With --step or a filter, all scenes are shown.
        if filter == Filter::default() && !self.step {
            return Filter {
                last: Some(SCENES_SHOWN),
                ..filter
            };
        }
        filter
    }
}

fn show(scenes: &[&Scene], screen: &Screen) -> Result<(), Failure> {
    let text = match screen.format {
        Format::Table | Format::Wide | Format::Name => {
            scenes.iter().fold(String::new(), |mut text, scene| {
                // Writing to a string cannot fail.
                let _infallible = writeln!(text, "{scene}");
                text
            })
        }
        format => render_documents(format, scenes)?,
    };
    screen.report(&text)
}

fn step(record: &Record, scenes: Vec<&Scene>, screen: &Screen) -> Result<(), Failure> {
    let count = scenes.len();
    screen.progress(&format!("{count} scenes; h lists the commands"));
    let mut stepper = Stepper::new(record, scenes);
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| Failure::new(format!("cannot read a command: {error}")))?;
        let Some(output) = stepper.execute(&line) else {
            break;
        };
        screen.data(&output)?;
    }
    Ok(())
}

fn state_at(record: &Record, revision: Revision) -> Result<String, Failure> {
    let state = record
        .state(revision)
        .ok_or_else(|| never_reached(revision))?;
    Ok(describe(state))
}

fn changed(record: &Record, from: Revision, to: Revision) -> Result<String, Failure> {
    let before = record.state_upto(from).ok_or_else(|| never_reached(from))?;
    let after = record.state(to).ok_or_else(|| never_reached(to))?;
    Ok(difference(before, after))
}

fn never_reached(revision: Revision) -> Failure {
    Failure::new(format!("the world never reached revision {revision}"))
}
