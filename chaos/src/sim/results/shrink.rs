//! Minimization of a failure: leaves out faults, then users' jobs, as long as a violation of the same kind
//! still occurs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write};
use std::num::NonZero;
use std::sync::Arc;

use crate::sim::faults::fault::ScheduledFault;
use crate::sim::faults::plan::{FaultSelection, Numbers, Plan};
use crate::sim::record::Record;
use crate::sim::results::report::{Report, Violation};
use crate::sim::script::Script;
use crate::sim::world::{WorldOptions, record, simulate};

/// Number of scenes before the violation that are printed.
const SCENES_TOLD: usize = 20;

/// The failure to minimize, and its budget.
#[derive(Clone, Debug)]
pub struct ShrinkOptions {
    /// A failing world.
    pub world: WorldOptions,
    /// Maximum number of worlds to run.
    pub runs_max: u64,
}

/// Reason why a failure could not be minimized.
#[derive(Debug, thiserror::Error)]
pub enum ShrinkError {
    /// Writing or the operating system failed.
    #[error("simulating")]
    Io(#[from] io::Error),
    /// The world has no violation.
    #[error("seed {0} violates no invariant")]
    Holds(u64),
    /// A non-deterministic world cannot be minimized.
    #[error(
        "seed {0} gives two different worlds in two runs: fix this bug of the simulation first"
    )]
    Different(u64),
}

/// A minimized failure.
#[derive(Debug)]
pub struct Shrunk {
    /// The minimized world.
    pub world: WorldOptions,
    /// Its faults.
    pub faults: Vec<ScheduledFault>,
    /// Number of faults before minimization.
    pub faults_before: usize,
    /// Number of jobs per user before and after minimization.
    pub jobs: (u32, u32),
    /// The violation that it still shows.
    pub violation: Violation,
    /// Number of worlds that were run.
    pub runs: u64,
    /// Whether the violation disappears without any one of its faults; false also if the budget was
    /// exhausted.
    pub is_minimal: bool,
    /// Record of the minimized world.
    pub record: Record,
}

impl Shrunk {
    /// Script that reproduces it even when draws have changed.
    #[must_use]
    pub fn script(&self) -> Script {
        Script::of(&self.world, self.violation.to_string())
    }

    /// Commands that reproduce it, one per line, if its script is in a file of this name. If the faults come
    /// from a file, only a file reproduces it: the seed's faults are different.
    #[must_use]
    pub fn replay(&self, file: &str) -> String {
        let by_file = format!("muster chaos replay {file}");
        match self.world.faults {
            FaultSelection::Script(_) => format!("replay: {by_file}\n"),
            FaultSelection::All | FaultSelection::Only(_) => {
                let by_seed = self.world.command();
                format!("replay: {by_seed}\n    or: {by_file}\n")
            }
        }
    }
}

impl fmt::Display for Shrunk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = (self.faults_before, self.faults.len());
        let (jobs_before, jobs_after) = self.jobs;
        writeln!(
            formatter,
            "{before} -> {after} faults, {jobs_before} -> {jobs_after} jobs of each user, {} worlds run",
            self.runs
        )?;
        if !self.is_minimal {
            writeln!(
                formatter,
                "the run budget is exhausted: some faults may be unnecessary"
            )?;
        }
        writeln!(formatter, "VIOLATION {}", self.violation)?;
        for scheduled in &self.faults {
            writeln!(formatter, "  {scheduled}")?;
        }
        writeln!(formatter, "last scenes")?;
        for scene in self.record.last(SCENES_TOLD) {
            writeln!(formatter, "  {scene}")?;
        }
        Ok(())
    }
}

/// Minimizes a failure; reports progress.
///
/// # Errors
/// [`ShrinkError`] if there is no failure, or it is not deterministic.
pub fn shrink(
    options: &ShrinkOptions,
    progress: &mut (dyn Write + Send),
) -> Result<Shrunk, ShrinkError> {
    let seed = options.world.seed;
    let first = simulate(&options.world)?;
    if first != simulate(&options.world)? {
        return Err(ShrinkError::Different(seed));
    }
    let Some(violation) = first.violations.first() else {
        return Err(ShrinkError::Holds(seed));
    };
    let plan = options.world.plan();
    let mut search = Search {
        world: options.world.clone(),
        plan: plan.clone(),
        kind: violation.kind(),
        runs_left: options.runs_max.saturating_sub(2),
        known: BTreeMap::new(),
        progress,
    };
    let mut trial = search.cut_time(&first)?;
    let mut is_minimal;
    loop {
        is_minimal = search.cut_faults(&mut trial)?;
        if !search.cut_jobs(&mut trial)? {
            break;
        }
    }
    let runs = options.runs_max - search.runs_left;
    let world = search.options(&trial);
    let (report, record) = record(&world)?;
    let kind = violation.kind();
    let shown = report.violations.into_iter().find(|it| it.kind() == kind);
    let faults = plan
        .faults
        .iter()
        .filter(|scheduled| trial.faults.contains(&scheduled.number));
    Ok(Shrunk {
        faults: faults.cloned().collect(),
        faults_before: plan.faults.len(),
        jobs: (options.world.jobs(), world.jobs()),
        // The search ended with a failing world, and worlds are deterministic.
        violation: shown.ok_or(ShrinkError::Different(seed))?,
        world,
        runs,
        is_minimal,
        record,
    })
}

/// A candidate world.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Trial {
    faults: BTreeSet<u32>,
    jobs: Option<u32>,
}

/// Search for the smallest failing world.
struct Search<'a> {
    world: WorldOptions,
    plan: Plan,
    kind: &'static str,
    runs_left: u64,
    /// Results of the candidates tried: whether the violation occurred.
    known: BTreeMap<Trial, bool>,
    progress: &'a mut (dyn Write + Send),
}

impl Search<'_> {
    /// Cuts off the time after the violation.
    fn cut_time(&mut self, first: &Report) -> io::Result<Trial> {
        let all = Trial {
            faults: self
                .plan
                .faults
                .iter()
                .map(|scheduled| scheduled.number)
                .collect(),
            jobs: self.world.jobs,
        };
        self.known.insert(all.clone(), true);
        let until_ms = first.first_violation_ms.unwrap_or(u64::MAX);
        let early = self
            .plan
            .faults
            .iter()
            .filter(|scheduled| scheduled.at_ms <= until_ms);
        let early = Trial {
            faults: early.map(|scheduled| scheduled.number).collect(),
            jobs: all.jobs,
        };
        Ok(self.first_that_shows(vec![early])?.unwrap_or(all))
    }

    /// Leaves out faults: first many at once, in the end one by one. Returns true if none of the remaining
    /// ones can be left out.
    fn cut_faults(&mut self, trial: &mut Trial) -> io::Result<bool> {
        let of = |faults: BTreeSet<u32>, jobs| Trial { faults, jobs };
        let nothing = of(BTreeSet::new(), trial.jobs);
        if let Some(none) = self.first_that_shows(vec![nothing])? {
            *trial = none;
            return Ok(true);
        }
        let mut parts = 2;
        while self.runs_left > 0 {
            let pieces = split(&trial.faults, parts);
            let rest = |piece: &BTreeSet<u32>| trial.faults.difference(piece).copied().collect();
            // With only two pieces, one is the complement of the other.
            let halves = pieces.iter().filter(|_| pieces.len() > 2).cloned();
            let candidates: Vec<Trial> = halves
                .chain(pieces.iter().map(rest))
                .map(|faults| of(faults, trial.jobs))
                .collect();
            match self.first_that_shows(candidates)? {
                Some(smaller) => {
                    let is_piece = pieces.len() > 2 && pieces.contains(&smaller.faults);
                    parts = if is_piece { 2 } else { (parts - 1).max(2) };
                    *trial = smaller;
                    self.report_progress(trial)?;
                }
                None if parts >= trial.faults.len() => return Ok(self.runs_left > 0),
                None => parts = (2 * parts).min(trial.faults.len()),
            }
        }
        Ok(false)
    }

    /// Leaves out users' last jobs, half of them at a time; returns true if there are fewer now.
    fn cut_jobs(&mut self, trial: &mut Trial) -> io::Result<bool> {
        let mut is_smaller = false;
        loop {
            let jobs = self.options(trial).jobs() / 2;
            if jobs == 0 {
                return Ok(is_smaller);
            }
            let fewer = Trial {
                faults: trial.faults.clone(),
                jobs: Some(jobs),
            };
            match self.first_that_shows(vec![fewer])? {
                Some(fewer) => *trial = fewer,
                None => return Ok(is_smaller),
            }
            is_smaller = true;
            self.report_progress(trial)?;
        }
    }

    fn report_progress(&mut self, trial: &Trial) -> io::Result<()> {
        let (faults, jobs) = (trial.faults.len(), self.options(trial).jobs());
        let left = self.runs_left;
        writeln!(
            self.progress,
            "reproduced with {faults} faults and {jobs} jobs of each user; {left} runs left"
        )?;
        self.progress.flush()
    }

    fn options(&self, trial: &Trial) -> WorldOptions {
        let faults = match &self.world.faults {
            FaultSelection::Script(_) => {
                let mut plan = self.plan.clone();
                plan.faults
                    .retain(|scheduled| trial.faults.contains(&scheduled.number));
                FaultSelection::Script(Arc::new(plan))
            }
            FaultSelection::All | FaultSelection::Only(_) => {
                FaultSelection::Only(Numbers(trial.faults.clone()))
            }
        };
        WorldOptions {
            faults,
            jobs: trial.jobs,
            ..self.world.clone()
        }
    }

    /// Returns the first candidate that shows the violation, running as many at a time as there are cores;
    /// the results of the others are cached.
    fn first_that_shows(&mut self, trials: Vec<Trial>) -> io::Result<Option<Trial>> {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        for some in trials.chunks(cores) {
            let unknown: Vec<&Trial> = some
                .iter()
                .filter(|it| !self.known.contains_key(it))
                .collect();
            let affordable = usize::try_from(self.runs_left).unwrap_or(usize::MAX);
            let unknown = &unknown[..unknown.len().min(affordable)];
            let worlds: Vec<WorldOptions> = unknown.iter().map(|it| self.options(it)).collect();
            let shown = all_at_once(&worlds, self.kind)?;
            self.runs_left -= unknown.len() as u64;
            let tried: Vec<Trial> = unknown.iter().copied().cloned().collect();
            self.known.extend(tried.into_iter().zip(shown));
            if let Some(found) = some.iter().find(|it| self.known.get(it) == Some(&true)) {
                return Ok(Some(found.clone()));
            }
        }
        Ok(None)
    }
}

/// Which of these worlds show a violation of a kind.
fn all_at_once(worlds: &[WorldOptions], kind: &str) -> io::Result<Vec<bool>> {
    let shows = |world: &WorldOptions| -> io::Result<bool> {
        let report = simulate(world)?;
        Ok(report.violations.iter().any(|it| it.kind() == kind))
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = worlds.iter().map(|it| scope.spawn(|| shows(it))).collect();
        let ended = running.into_iter().map(|thread| {
            let panicked = |_| Err(io::Error::other("a thread of the search panicked"));
            thread.join().unwrap_or_else(panicked)
        });
        ended.collect()
    })
}

/// Splits a set into `parts` pieces of about the same size, none of them empty.
fn split(faults: &BTreeSet<u32>, parts: usize) -> Vec<BTreeSet<u32>> {
    let all: Vec<u32> = faults.iter().copied().collect();
    let size = all.len().div_ceil(parts.max(1)).max(1);
    let pieces = all.chunks(size);
    pieces
        .map(|piece| piece.iter().copied().collect())
        .collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::sim::mutant::Mutant;

    #[test]
    fn pieces_are_disjoint_and_whole() {
        let faults: BTreeSet<u32> = (1..=7).collect();
        for parts in 1..9 {
            let pieces = split(&faults, parts);
            assert!(pieces.len() <= parts && pieces.iter().all(|it| !it.is_empty()));
            let all: Vec<u32> = pieces.into_iter().flatten().collect();
            assert_eq!(all, faults.iter().copied().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_mutant_is_shown_by_few_faults_of_which_none_can_be_left_out() {
        // Tasks outlive their lease only if their agent is away: that takes a fault.
        let failing = (0..40).find_map(|seed| {
            let world = WorldOptions {
                seed,
                faults_s: 30,
                mutant: Some(Mutant::LongLease),
                ..WorldOptions::default()
            };
            let report = simulate(&world).unwrap();
            let shown = report
                .violations
                .iter()
                .any(|it| it.kind() == "exclusivity");
            shown.then_some(world)
        });
        let options = ShrinkOptions {
            world: failing.unwrap(),
            runs_max: 200,
        };
        let shrunk = shrink(&options, &mut Vec::new()).unwrap();
        assert!(shrunk.is_minimal && !shrunk.faults.is_empty(), "{shrunk}");
        assert!(shrunk.faults.len() < shrunk.faults_before, "{shrunk}");
        assert_eq!(shrunk.violation.kind(), "exclusivity");
        for scheduled in &shrunk.faults {
            let others = shrunk.faults.iter().map(|it| it.number);
            let others = others
                .filter(|number| *number != scheduled.number)
                .collect();
            let world = WorldOptions {
                faults: FaultSelection::Only(Numbers(others)),
                ..shrunk.world.clone()
            };
            let report = simulate(&world).unwrap();
            let shown = report
                .violations
                .iter()
                .any(|it| it.kind() == "exclusivity");
            assert!(!shown, "fault {scheduled} is not needed\n{shrunk}");
        }
        // Its script reproduces it.
        let script = Script::read(&shrunk.script().write().unwrap()).unwrap();
        let report = simulate(&script.options()).unwrap();
        assert!(
            report
                .violations
                .iter()
                .any(|it| it.kind() == "exclusivity")
        );
        // So does its seed, except if the faults come from a file.
        let replay = shrunk.replay("small.json");
        let by_seed = replay.starts_with("replay: muster chaos sim --first ");
        assert!(by_seed && replay.contains("--only-faults"), "{replay}");
        assert!(replay.ends_with("or: muster chaos replay small.json\n"));
        let of_file = Shrunk {
            world: script.options(),
            ..shrunk
        };
        let by_file = "replay: muster chaos replay small.json\n";
        assert_eq!(of_file.replay("small.json"), by_file);
    }

    #[test]
    fn a_passing_world_is_not_shrunk() {
        let options = ShrinkOptions {
            world: WorldOptions {
                seed: 1,
                faults_s: 5,
                ..WorldOptions::default()
            },
            runs_max: 10,
        };
        let refused = shrink(&options, &mut Vec::new());
        assert!(matches!(refused, Err(ShrinkError::Holds(1))), "{refused:?}");
    }
}
