//! Many worlds: one per seed, on all cores, then the proofs that the judges see what they are there for.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use super::coverage::{Coverage, Situation};
use super::mutant::Mutant;
use super::report::{Report, Violation};
use super::runtime::panic_message;
use super::world::{WorldOptions, simulate};

/// Seeds within which each mutant must be found.
pub const MUTANT_SEEDS_MAX: u64 = 40;
/// Worlds from which on a sweep must have gone through every situation.
pub const COVERAGE_WORLDS_MIN: u64 = 100;
/// Lines of progress of a sweep.
const PROGRESS_LINES: u64 = 10;

/// Which worlds to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepOptions {
    /// First seed.
    pub first: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// Simulated seconds with faults, per world.
    pub faults_s: u64,
    /// Whether each world gets a line, not only those that fail.
    pub all_lines: bool,
    /// Whether the judges must find the mutants, too.
    pub mutants: bool,
}

/// The outcome of a sweep.
#[derive(Clone, Debug)]
pub struct SweepReport {
    /// What was run.
    pub options: SweepOptions,
    /// Worlds in which something happened that must not.
    pub failures: Vec<Report>,
    /// Whether the first seed, run twice, gave the same bytes.
    pub is_reproducible: bool,
    /// Mutants, the seed that found each, and what gave it away.
    pub mutants: Vec<(Mutant, Option<Find>)>,
    sums: Sums,
}

/// What gave a mutant away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Find {
    /// The world's seed.
    pub seed: u64,
    /// The first violation of the kind that it must show as.
    pub violation: Violation,
}

/// Sums over worlds.
#[derive(Clone, Debug, Default)]
struct Sums {
    worlds: u64,
    acknowledged: u64,
    task_starts: u64,
    messages: u64,
    audits: u64,
    compared: u64,
    faults: BTreeMap<&'static str, u64>,
    repairs: BTreeMap<&'static str, u64>,
    coverage: Coverage,
}

impl Sums {
    fn add(&mut self, report: &Report) {
        self.worlds += 1;
        self.acknowledged += report.acknowledged;
        self.task_starts += report.task_starts;
        self.messages += report.messages;
        self.audits += report.audits;
        self.compared += report.compared;
        for (fault, count) in &report.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        for (repair, count) in &report.repairs {
            *self.repairs.entry(repair).or_default() += count;
        }
        self.coverage.add(&report.coverage);
    }
}

impl SweepReport {
    /// Whether everything held, and the judges have proved that they see.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.failures.is_empty()
            && self.is_reproducible
            && self.mutants.iter().all(|(_, find)| find.is_some())
            && self.unreached().is_empty()
    }

    /// Situations that no world came to, if there were worlds enough.
    #[must_use]
    pub fn unreached(&self) -> Vec<Situation> {
        if self.sums.worlds < COVERAGE_WORLDS_MIN {
            return Vec::new();
        }
        self.sums.coverage.missing().collect()
    }

    fn write_sums(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sums = &self.sums;
        writeln!(
            formatter,
            "\n{} worlds of {} s with faults and a quiet end: {} acknowledged jobs, {} task starts, {} messages",
            sums.worlds, self.options.faults_s, sums.acknowledged, sums.task_starts, sums.messages
        )?;
        write_counts(formatter, "faults", &sums.faults)?;
        write_counts(formatter, "repairs", &sums.repairs)?;
        writeln!(formatter, "situations")?;
        for situation in Situation::ALL {
            let times = sums.coverage.times(situation);
            writeln!(formatter, "  {times:>8}  {situation}")?;
        }
        writeln!(formatter, "checked in every world")?;
        for check in CHECKS {
            writeln!(formatter, "  {check}")?;
        }
        writeln!(
            formatter,
            "  ({} states audited, {} comparisons of replicas)",
            sums.audits, sums.compared
        )
    }

    fn write_proofs(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.options.first;
        let same = if self.is_reproducible {
            "the same bytes"
        } else {
            "DIFFERENT worlds"
        };
        writeln!(formatter, "proofs")?;
        writeln!(formatter, "  seed {first} run twice gives {same}")?;
        for (mutant, find) in &self.mutants {
            match find {
                Some(Find { seed, violation }) => writeln!(
                    formatter,
                    "  mutant {mutant:?} is found by seed {seed}: {violation}"
                )?,
                None => writeln!(
                    formatter,
                    "  mutant {mutant:?} is NOT FOUND within {MUTANT_SEEDS_MAX} seeds"
                )?,
            }
        }
        for situation in self.unreached() {
            writeln!(formatter, "  NO WORLD came to: {situation}")?;
        }
        Ok(())
    }

    fn write_failures(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(formatter, "\n{failure}")?;
            for incident in &failure.incidents {
                let (seconds, millis) = (incident.at_ms / 1_000, incident.at_ms % 1_000);
                writeln!(
                    formatter,
                    "    {seconds:>4}.{millis:03} s  {}",
                    incident.what
                )?;
            }
            writeln!(
                formatter,
                "    replay: muster chaos sim --first {} --seeds 1 --faults-seconds {} --skip-mutants",
                failure.seed, self.options.faults_s
            )?;
        }
        Ok(())
    }
}

/// What is checked, for people; `Violation` has a kind for each.
const CHECKS: [&str; 9] = [
    "exclusivity: no GPU, task or gang in two attempts, none started twice or after a newer one (tasks' side)",
    "acknowledged: every answered submit is there once under its answer, every answered cancel stands",
    "reads: a linearizable read after an answer sees the job, whichever replica is asked",
    "gangs: an attempt has all tasks of its unit or none, and every other rule of the audit, at every state seen",
    "assembly: no member of a gang that waits for itself begins before all of its members were prepared (tasks' side)",
    "fencing: no agent acts on an order older than one it acted on; no attempt of an older epoch starts",
    "agreement: replicas at one revision have one state hash; at rest they stand at one revision",
    "success: a unit that counts as success has run, every task of it, to exit code 0 (tasks' side)",
    "progress: after the last repair every job that fits ends, no process is left; no panic, no replica stops by itself",
];

fn write_counts(
    formatter: &mut fmt::Formatter<'_>,
    title: &str,
    counts: &BTreeMap<&'static str, u64>,
) -> fmt::Result {
    writeln!(formatter, "{title}")?;
    for (what, count) in counts {
        writeln!(formatter, "  {count:>8}  {what}")?;
    }
    Ok(())
}

impl fmt::Display for SweepReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_sums(formatter)?;
        self.write_proofs(formatter)?;
        self.write_failures(formatter)?;
        let verdict = if self.holds() { "accepted" } else { "REJECTED" };
        let failed = self.failures.len() as u64;
        writeln!(
            formatter,
            "{verdict}: {} worlds passed, {failed} failed",
            self.sums.worlds - failed
        )
    }
}

/// Runs the worlds of `options`, then the meta test (one seed twice) and the mutants; writes lines to
/// `progress` meanwhile.
///
/// # Errors
/// If `progress` or the operating system fails.
pub fn sweep(options: SweepOptions, progress: &mut (dyn Write + Send)) -> io::Result<SweepReport> {
    let (sums, failures) = Sweep::run(options, progress)?;
    let first = world_of(options, options.first, None);
    let is_reproducible = run_world(first)? == run_world(first)?;
    let mut mutants = Vec::new();
    if options.mutants {
        for mutant in Mutant::ALL {
            mutants.push((mutant, find(mutant, options)?));
        }
    }
    Ok(SweepReport {
        options,
        failures,
        is_reproducible,
        mutants,
        sums,
    })
}

const fn world_of(options: SweepOptions, seed: u64, mutant: Option<Mutant>) -> WorldOptions {
    WorldOptions {
        seed,
        faults_s: options.faults_s,
        mutant,
    }
}

/// Runs a world; a panic is a violation like any other.
fn run_world(options: WorldOptions) -> io::Result<Report> {
    catch_unwind(AssertUnwindSafe(|| simulate(options))).unwrap_or_else(|payload| {
        Ok(Report {
            seed: options.seed,
            violations: vec![Violation::Panic(panic_message(&*payload))],
            ..Report::default()
        })
    })
}

/// The first seed that finds a mutant by what it must show as.
fn find(mutant: Mutant, options: SweepOptions) -> io::Result<Option<Find>> {
    for seed in options.first..options.first + MUTANT_SEEDS_MAX {
        let report = run_world(world_of(options, seed, Some(mutant)))?;
        let mut violations = report.violations.into_iter();
        if let Some(violation) = violations.find(|violation| mutant.shows_as(violation)) {
            return Ok(Some(Find { seed, violation }));
        }
    }
    Ok(None)
}

/// A sweep under way.
struct Sweep<'a> {
    options: SweepOptions,
    sums: Sums,
    failures: Vec<Report>,
    progress: &'a mut (dyn Write + Send),
}

impl<'a> Sweep<'a> {
    fn run(
        options: SweepOptions,
        progress: &'a mut (dyn Write + Send),
    ) -> io::Result<(Sums, Vec<Report>)> {
        let next = AtomicU64::new(options.first);
        let sweep = Mutex::new(Self {
            options,
            sums: Sums::default(),
            failures: Vec::new(),
            progress,
        });
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        std::thread::scope(|scope| {
            let runners: Vec<_> = (0..threads)
                .map(|_| scope.spawn(|| run_some(&next, options, &sweep)))
                .collect();
            runners.into_iter().try_for_each(|runner| {
                runner
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a thread of the sweep panicked")))
            })
        })?;
        let Self {
            sums, mut failures, ..
        } = sweep.into_inner().unwrap_or_else(PoisonError::into_inner);
        failures.sort_by_key(|report| report.seed);
        Ok((sums, failures))
    }

    fn take(&mut self, report: Report) -> io::Result<()> {
        self.sums.add(&report);
        if self.options.all_lines || !report.violations.is_empty() {
            writeln!(self.progress, "{report}")?;
        }
        let every = (self.options.seeds / PROGRESS_LINES).max(1);
        if !self.options.all_lines && self.sums.worlds.is_multiple_of(every) {
            let faults: u64 = self.sums.faults.values().sum();
            writeln!(
                self.progress,
                "{:>6} of {} worlds, {} faults, {} acknowledged jobs, {} failed",
                self.sums.worlds,
                self.options.seeds,
                faults,
                self.sums.acknowledged,
                self.failures.len() + usize::from(!report.violations.is_empty()),
            )?;
        }
        self.progress.flush()?;
        if !report.violations.is_empty() {
            self.failures.push(report);
        }
        Ok(())
    }
}

fn run_some(next: &AtomicU64, options: SweepOptions, sweep: &Mutex<Sweep<'_>>) -> io::Result<()> {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= options.first + options.seeds {
            return Ok(());
        }
        let report = run_world(world_of(options, seed, None))?;
        let mut sweep = sweep.lock().unwrap_or_else(PoisonError::into_inner);
        sweep.take(report)?;
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
            all_lines: true,
            mutants: true,
        };
        let mut lines = Vec::new();
        let report = sweep(options, &mut lines).unwrap();
        assert!(report.holds(), "{report}");
        assert_eq!(report.mutants.len(), Mutant::ALL.len());
        assert_eq!(String::from_utf8(lines).unwrap().lines().count(), 4);
    }
}
