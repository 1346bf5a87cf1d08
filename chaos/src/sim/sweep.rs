//! Many worlds: one per seed, on all cores, with a line for each and the command that replays a failure.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use super::report::Report;
use super::world::{Mutant, WorldOptions, simulate};

/// Seeds within which each mutant must be found.
pub const MUTANT_SEEDS_MAX: u64 = 40;

/// Which worlds to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepOptions {
    /// First seed.
    pub first: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// Simulated seconds with faults, per world.
    pub faults_s: u64,
}

/// The outcome of a sweep.
#[derive(Clone, Debug, Default)]
pub struct SweepReport {
    /// Worlds in which something happened that must not.
    pub failures: Vec<Report>,
    /// Seeds whose second run differed from the first.
    pub not_reproducible: Vec<u64>,
    /// Mutants that no seed found.
    pub mutants_alive: Vec<Mutant>,
    worlds: u64,
    acknowledged: u64,
    task_starts: u64,
    faults: BTreeMap<&'static str, u64>,
}

impl SweepReport {
    /// Whether everything held, and the judges have proved that they see.
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.failures.is_empty()
            && self.not_reproducible.is_empty()
            && self.mutants_alive.is_empty()
    }

    fn add(&mut self, report: Report) {
        self.worlds += 1;
        self.acknowledged += report.acknowledged;
        self.task_starts += report.task_starts;
        for (fault, count) in &report.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        if !report.violations.is_empty() {
            self.failures.push(report);
        }
    }
}

impl fmt::Display for SweepReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{} worlds, {} acknowledged jobs, {} task starts",
            self.worlds, self.acknowledged, self.task_starts
        )?;
        for (fault, count) in &self.faults {
            writeln!(formatter, "  {count:>6} x {fault}")?;
        }
        for seed in &self.not_reproducible {
            writeln!(
                formatter,
                "seed {seed} gives different worlds when run twice"
            )?;
        }
        for mutant in &self.mutants_alive {
            writeln!(
                formatter,
                "mutant {mutant:?} was not found within {MUTANT_SEEDS_MAX} seeds"
            )?;
        }
        for failure in &self.failures {
            writeln!(formatter, "{failure}")?;
            writeln!(
                formatter,
                "    replay: muster chaos sim --first {} --seeds 1",
                failure.seed
            )?;
        }
        let verdict = if self.holds() { "accepted" } else { "REJECTED" };
        writeln!(
            formatter,
            "{verdict}: {} passed, {} failed",
            self.passed(),
            self.failures.len()
        )
    }
}

impl SweepReport {
    fn passed(&self) -> u64 {
        self.worlds - self.failures.len() as u64
    }
}

/// Runs the worlds of `options`, then the meta test (one seed twice) and the mutants; writes a line per
/// world to `progress`.
///
/// # Errors
/// If `progress` or the operating system fails.
pub fn sweep(options: SweepOptions, progress: &mut (dyn Write + Send)) -> io::Result<SweepReport> {
    let mut report = SweepReport::default();
    for world in run_all(options, progress)? {
        report.add(world);
    }
    let first = WorldOptions {
        seed: options.first,
        faults_s: options.faults_s,
        mutant: None,
    };
    if simulate(first)? != simulate(first)? {
        report.not_reproducible.push(options.first);
    }
    for mutant in [Mutant::AckBeforeSync, Mutant::LongLease] {
        match find(mutant, options)? {
            Some(seed) => writeln!(progress, "mutant {mutant:?} is found by seed {seed}")?,
            None => report.mutants_alive.push(mutant),
        }
    }
    Ok(report)
}

/// The first seed that finds a mutant.
fn find(mutant: Mutant, options: SweepOptions) -> io::Result<Option<u64>> {
    for seed in options.first..options.first + MUTANT_SEEDS_MAX {
        let world = WorldOptions {
            seed,
            faults_s: options.faults_s,
            mutant: Some(mutant),
        };
        if !simulate(world)?.violations.is_empty() {
            return Ok(Some(seed));
        }
    }
    Ok(None)
}

fn run_all(options: SweepOptions, progress: &mut (dyn Write + Send)) -> io::Result<Vec<Report>> {
    let next = AtomicU64::new(options.first);
    let end = options.first + options.seeds;
    let outcome = Mutex::new((Vec::new(), progress));
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        let runners: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| run_some(&next, end, options.faults_s, &outcome)))
            .collect();
        runners.into_iter().try_for_each(|runner| {
            runner
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a simulated world panicked")))
        })
    })?;
    let (mut reports, _) = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    reports.sort_by_key(|report: &Report| report.seed);
    Ok(reports)
}

fn run_some(
    next: &AtomicU64,
    end: u64,
    faults_s: u64,
    outcome: &Mutex<(Vec<Report>, &mut (dyn Write + Send))>,
) -> io::Result<()> {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return Ok(());
        }
        let report = simulate(WorldOptions {
            seed,
            faults_s,
            mutant: None,
        })?;
        let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(outcome.1, "{report}")?;
        outcome.0.push(report);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_short_sweep_holds_and_finds_every_mutant() {
        let options = SweepOptions {
            first: 100,
            seeds: 4,
            faults_s: 40,
        };
        let mut lines = Vec::new();
        let report = sweep(options, &mut lines).unwrap();
        assert!(report.holds(), "{report}");
        assert_eq!(
            String::from_utf8(lines)
                .unwrap()
                .matches("is found by seed")
                .count(),
            2
        );
    }
}
