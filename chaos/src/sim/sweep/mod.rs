//! Sweep of many worlds: one per seed, on all cores, then the meta test and the mutants, which prove that
//! the checkers work.

mod meta;
mod options;
mod progress;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, thread};

use rustix::time::{ClockId, clock_gettime};

pub use meta::Meta;
use meta::meta_test;
pub use options::SweepOptions;
use progress::with_progress;

use crate::sim::checkers::Checkers;
use crate::sim::faults::coverage::{Coverage, Situation};
use crate::sim::mutant::Mutant;
use crate::sim::record::difference;
use crate::sim::results::report::{Report, Violation};
use crate::sim::world::{WorldOptions, judged, record, simulate};

/// Worlds within which each mutant must be found; those that cannot show it are skipped.
pub const MUTANT_WORLDS_MAX: u64 = 100;
/// Number of worlds from which on a sweep must reach every situation.
pub const COVERAGE_WORLDS_MIN: u64 = 100;
/// Maximum progress lines of a sweep, in addition to one every minute.
const PROGRESS_LINES: u64 = 10;
/// Number of scenes printed before a violation, and number of failures printed in such detail.
const SCENES_TOLD: usize = 20;
const FAILURES_TOLD: usize = 5;
/// Milliseconds per hour.
const HOUR_MS: f64 = 3_600_000.0;

/// Result of a sweep.
#[derive(Clone, Debug)]
pub struct SweepReport {
    /// Options of the sweep.
    pub options: SweepOptions,
    /// Reports of worlds with violations.
    pub failures: Vec<Report>,
    /// Whether the first seed gave the same bytes every time.
    pub meta: Meta,
    /// Mutants, each with the seed and violation that revealed it.
    pub mutants: Vec<(Mutant, Option<MutantFound>)>,
    sums: Sums,
}

/// Discovery of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutantFound {
    /// Seed of the world.
    pub seed: u64,
    /// The first violation of the expected kind.
    pub violation: Violation,
}

/// Totals over worlds.
#[derive(Clone, Debug, Default)]
struct Sums {
    worlds: u64,
    acknowledged: u64,
    task_starts: u64,
    messages: u64,
    audits: u64,
    compared: u64,
    entries: u64,
    skipped: u64,
    simulated_ms: u64,
    /// CPU time spent.
    spent: Duration,
    faults: BTreeMap<&'static str, u64>,
    repairs: BTreeMap<&'static str, u64>,
    coverage: Coverage,
}

impl Sums {
    fn add(&mut self, report: &Report, spent: Duration) {
        self.worlds += 1;
        self.spent += spent;
        self.simulated_ms += report.simulated_ms;
        self.entries += report.entries;
        self.skipped += report.skipped;
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
    /// Whether all worlds passed and the checkers have proved their sensitivity.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.failures.is_empty()
            && self.meta.holds()
            && self.mutants.iter().all(|(_, find)| find.is_some())
            && self.unreached().is_empty()
    }

    /// Required situations that no world reached, if there were enough worlds.
    #[must_use]
    pub fn unreached(&self) -> Vec<Situation> {
        if self.sums.worlds < COVERAGE_WORLDS_MIN {
            return Vec::new();
        }
        self.sums.coverage.missing().collect()
    }

    /// The verdict in words. A few worlds without a violation are no evidence unless every situation
    /// occurred.
    fn verdict(&self) -> String {
        let missing = self.sums.coverage.missing().count();
        match (self.holds(), missing) {
            (false, _) => "REJECTED".to_owned(),
            (true, 0) => "accepted".to_owned(),
            (true, _) => {
                format!("no violation, but no evidence ({missing} situations never occurred)")
            }
        }
    }

    fn write_sums(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sums = &self.sums;
        writeln!(
            formatter,
            "\n{} worlds of {} s of faults with a quiet phase: {} acknowledged jobs, {} task starts, {} messages",
            sums.worlds, self.options.faults_s, sums.acknowledged, sums.task_starts, sums.messages
        )?;
        let ranges = self.options.ranges();
        let ranges = ranges.iter().filter(|range| !range.is_empty());
        let seeds: Vec<_> = ranges
            .map(|range| format!("{} to {}", range.start, range.end - 1))
            .collect();
        writeln!(formatter, "seeds {}", seeds.join(", "))?;
        let hours = sums.simulated_ms as f64 / HOUR_MS;
        let core_hours = sums.spent.as_secs_f64() * 1_000.0 / HOUR_MS;
        writeln!(
            formatter,
            "{hours:.1} simulated hours of clusters in {core_hours:.2} core-hours: {:.0} cluster-hours per core-hour",
            hours / core_hours.max(f64::MIN_POSITIVE)
        )?;
        write_counts(formatter, "faults", &sums.faults)?;
        write_counts(formatter, "repairs", &sums.repairs)?;
        writeln!(
            formatter,
            "  {:>8}  faults skipped, because their target was down",
            sums.skipped
        )?;
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
            "  ({} states audited, {} comparisons of replicas, {} entries of logs)",
            sums.audits, sums.compared, sums.entries
        )
    }

    fn write_proofs(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.options.first;
        writeln!(formatter, "proofs")?;
        writeln!(formatter, "  seed {first}: {}", self.meta)?;
        for (mutant, find) in &self.mutants {
            match find {
                Some(MutantFound { seed, violation }) => {
                    let world = world_of(&self.options, *seed, Some(*mutant));
                    let (name, command) = (mutant.name(), world.command());
                    writeln!(
                        formatter,
                        "  mutant {name} found by seed {seed}: {violation}"
                    )?;
                    writeln!(formatter, "    replay: {command}")?;
                }
                None => writeln!(
                    formatter,
                    "  mutant {} is NOT FOUND within {MUTANT_WORLDS_MAX} worlds",
                    mutant.name()
                )?,
            }
        }
        for situation in self.unreached() {
            writeln!(formatter, "  NO WORLD reached: {situation}")?;
        }
        let missing = self.sums.coverage.missing().count();
        if self.sums.worlds < COVERAGE_WORLDS_MIN && missing > 0 {
            writeln!(
                formatter,
                "  no evidence: {} worlds are fewer than {COVERAGE_WORLDS_MIN}, {missing} situations never occurred",
                self.sums.worlds
            )?;
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
        }
        for failure in self.failures.iter().take(FAILURES_TOLD) {
            self.write_end(formatter, failure)?;
        }
        for failure in &self.failures {
            let world = world_of(&self.options, failure.seed, self.options.mutant);
            writeln!(formatter, "replay: {}", world.command())?;
        }
        Ok(())
    }

    /// Prints the last scenes of a failed world and the change by the last command: the world is run again
    /// for that.
    fn write_end(&self, formatter: &mut fmt::Formatter<'_>, failure: &Report) -> fmt::Result {
        let world = world_of(&self.options, failure.seed, self.options.mutant);
        let record = match record(&world) {
            Ok((_, record)) => record,
            Err(error) => return writeln!(formatter, "it cannot be run again: {error}"),
        };
        writeln!(formatter, "\nseed {}: last scenes", failure.seed)?;
        for scene in record.last(SCENES_TOLD) {
            writeln!(formatter, "  {scene}")?;
        }
        let states = record.last_change();
        let states =
            states.and_then(|(from, to)| Some((record.state_upto(from)?, record.state(to)?)));
        if let Some((before, after)) = states {
            write!(
                formatter,
                "what the last command changed: {}",
                difference(before, after)
            )?;
        }
        Ok(())
    }
}

/// Description of the checks, one for each kind of `Violation`.
const CHECKS: [&str; 15] = [
    "exclusivity: no GPU, task or gang in two attempts, none started twice or after a newer one (tasks' side)",
    "acknowledged: every answered submit exists under its answer, every job is the answer to one request that a \
     user sent, every refused submit had no effect, every answered cancel took effect",
    "reads: a linearizable read after an answer returns the job, whichever replica serves it",
    "gangs: an attempt has all tasks of its unit or none, and every other rule of the audit, after every entry; \
     replicas that apply it later have the same state hash, and are audited when they start, install a snapshot, \
     and after one entry in 16; of a state of N x 5,000 records, after one entry in N + 1 of these",
    "assembly: no member of a gang with a start barrier starts before all members are prepared (tasks' side)",
    "fencing: no agent acts on an order older than one it acted on; no attempt of an older epoch starts",
    "fencing: no command of a leadership takes effect once another one has begun",
    "agreement: replicas at one revision have one state hash, also in reads of past states; \
     idle replicas are at one revision",
    "raft: leaders in sequence, each with all previously committed entries; terms never decrease, entries never change \
     and are applied in order, a log is purged only behind a snapshot",
    "closed: nothing is placed on components out of placement, repairs stay within their limits, \
     and no rule holds a repaired component",
    "admission: requests that break a rule, name missing objects, or reuse another request's id are refused",
    "blame: a missing user account on a host is neither attributed nor charged",
    "success: every task of a successful unit has run to exit code 0 (tasks' side)",
    "recovery: two minutes after the last repair there is a leader whose writes have reached every replica",
    "progress: after the last repair every job that fits ends, no process is left; \
     no panic, no replica stops by itself",
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
        let verdict = self.verdict();
        let failed = self.failures.len() as u64;
        writeln!(
            formatter,
            "{verdict}: {} worlds passed, {failed} failed",
            self.sums.worlds - failed
        )
    }
}

/// Runs the worlds of `options`, then the meta test (the first of them again) and the mutants; writes
/// progress lines to `progress`.
///
/// # Errors
/// If `progress` or the operating system fails.
pub fn sweep(options: SweepOptions, progress: &mut (dyn Write + Send)) -> io::Result<SweepReport> {
    let (sums, failures, first) = Sweep::run(&options, progress)?;
    let meta = meta_test(&options, first.as_ref())?;
    let mutants = find_all(&options)?;
    Ok(SweepReport {
        options,
        failures,
        meta,
        mutants,
        sums,
    })
}

fn world_of(options: &SweepOptions, seed: u64, mutant: Option<Mutant>) -> WorldOptions {
    WorldOptions {
        seed,
        faults_s: options.faults_s,
        mutant,
        faults: options.faults.clone(),
        jobs: options.jobs,
        scale: options.scale,
    }
}

/// Searches for every mutant of the options, in their order.
fn find_all(options: &SweepOptions) -> io::Result<Vec<(Mutant, Option<MutantFound>)>> {
    let next = AtomicUsize::new(0);
    let find_some = || {
        let mut found = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            match options.mutants.get(number) {
                Some(mutant) => found.push((number, (*mutant, find(*mutant, options)?))),
                None => return Ok(found),
            }
        }
    };
    let mut found: Vec<_> = on_all_cores(find_some)?.into_iter().flatten().collect();
    found.sort_by_key(|(number, _)| *number);
    Ok(found.into_iter().map(|(_, found)| found).collect())
}

/// Runs `work` in one thread per core, and waits for all.
fn on_all_cores<T: Send>(work: impl Fn() -> io::Result<T> + Sync) -> io::Result<Vec<T>> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let runners: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        let ended = runners.into_iter().map(|runner| {
            runner
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a thread of the sweep panicked")))
        });
        ended.collect()
    })
}

/// The first seed that reveals a mutant by its expected violation.
fn find(mutant: Mutant, options: &SweepOptions) -> io::Result<Option<MutantFound>> {
    let seeds = (options.first..).filter(|seed| mutant.can_show_in(*seed));
    for seed in seeds.zip(0..MUTANT_WORLDS_MAX).map(|(seed, _)| seed) {
        let report = simulate(&world_of(options, seed, Some(mutant)))?;
        let mut violations = report.violations.into_iter();
        if let Some(violation) = violations.find(|violation| mutant.shows_as(violation)) {
            return Ok(Some(MutantFound { seed, violation }));
        }
    }
    Ok(None)
}

/// A running sweep.
struct Sweep<'a> {
    options: &'a SweepOptions,
    sums: Sums,
    failures: Vec<Report>,
    /// Report of the first seed.
    first: Option<Report>,
    progress: &'a mut (dyn Write + Send),
}

impl<'a> Sweep<'a> {
    fn run(
        options: &'a SweepOptions,
        progress: &'a mut (dyn Write + Send),
    ) -> io::Result<(Sums, Vec<Report>, Option<Report>)> {
        let seeds = Mutex::new(options.ranges().into_iter().flatten());
        let next = || {
            let mut seeds = seeds.lock().unwrap_or_else(PoisonError::into_inner);
            seeds.next()
        };
        let sweep = Mutex::new(Self {
            options,
            sums: Sums::default(),
            failures: Vec::new(),
            first: None,
            progress,
        });
        let checkers = Checkers::default();
        if options.seeds == 1 {
            let only = || checkers.clone();
            let report_time =
                |sweep: &mut Sweep<'_>| sweep.report_simulated_time(checkers.reached_ms());
            with_progress(&sweep, report_time, || {
                run_some(&next, options, &sweep, only)
            })?;
        } else {
            let run = || run_some(&next, options, &sweep, Checkers::default);
            with_progress(&sweep, Sweep::report_worlds, || on_all_cores(run).map(drop))?;
        }
        let Self {
            sums,
            mut failures,
            first,
            ..
        } = sweep.into_inner().unwrap_or_else(PoisonError::into_inner);
        failures.sort_by_key(|report| report.seed);
        Ok((sums, failures, first))
    }

    fn take(&mut self, report: Report, spent: Duration) -> io::Result<()> {
        self.sums.add(&report, spent);
        if report.seed == self.options.first {
            self.first = Some(report.clone());
        }
        if self.options.all_lines || !report.violations.is_empty() {
            writeln!(self.progress, "{report}")?;
        }
        if !report.violations.is_empty() {
            self.failures.push(report);
        }
        let every = (self.options.seeds / PROGRESS_LINES).max(1);
        if self.sums.worlds.is_multiple_of(every) {
            self.report_worlds()?;
        }
        self.progress.flush()
    }
}

/// CPU time of the current thread.
fn core_time() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(spent.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(spent.tv_nsec).unwrap_or_default())
}

fn run_some(
    next: &impl Fn() -> Option<u64>,
    options: &SweepOptions,
    sweep: &Mutex<Sweep<'_>>,
    checkers: impl Fn() -> Checkers,
) -> io::Result<()> {
    while let Some(seed) = next() {
        let before = core_time();
        let report = judged(&world_of(options, seed, options.mutant), &checkers())?;
        let spent = core_time().saturating_sub(before);
        let mut sweep = sweep.lock().unwrap_or_else(PoisonError::into_inner);
        sweep.take(report, spent)?;
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Sweeps four worlds from `first` on; the mutants must be found in them or soon after.
    fn short_sweep_finds(first: u64, mutants: &[Mutant]) {
        let options = SweepOptions {
            first,
            seeds: 4,
            faults_s: 60,
            all_lines: true,
            mutants: mutants.to_vec(),
            ..SweepOptions::default()
        };
        let mut lines = Vec::new();
        let report = sweep(options, &mut lines).unwrap();
        assert!(report.holds(), "{report}");
        assert_eq!(report.mutants.len(), mutants.len());
        assert_eq!(String::from_utf8(lines).unwrap().lines().count(), 4);
        let text = report.to_string();
        assert!(text.contains("cluster-hours per core-hour"), "{text}");
        let seeds = format!(
            "seeds {first} to {}, {} to {}",
            first + 1,
            first + 2,
            first + 3
        );
        assert!(text.contains(&seeds), "{text}");
        // Every bug found comes with the command that reproduces it.
        let replays = text.lines().filter(|line| line.contains("replay: muster"));
        assert_eq!(replays.count(), mutants.len());
    }

    /// One mutant of each component: supervisor, agent, replica, watch. Each shows in the first world.
    #[test]
    fn a_short_sweep_holds_and_finds_a_mutant_of_each_part() {
        short_sweep_finds(
            0,
            &[
                Mutant::BeginsAlone,
                Mutant::ForgetfulJournal,
                Mutant::StaleReads,
                Mutant::SkipsOnResume,
            ],
        );
    }

    mod soak {
        use super::*;

        #[test]
        fn a_short_sweep_holds_and_finds_every_mutant() {
            // The slowest mutants to find show soon after this seed.
            short_sweep_finds(103, &Mutant::ALL);
        }
    }

    #[test]
    fn half_of_the_seeds_may_begin_elsewhere() {
        let options = |seeds, second_half| SweepOptions {
            first: 5,
            seeds,
            second_half,
            ..SweepOptions::default()
        };
        let seeds = |options: SweepOptions| -> Vec<u64> {
            options.ranges().into_iter().flatten().collect()
        };
        assert_eq!(seeds(options(5, None)), [5, 6, 7, 8, 9]);
        assert_eq!(seeds(options(5, Some(100))), [5, 6, 7, 100, 101]);
        assert_eq!(seeds(options(1, Some(100))), [5]);
    }

    /// The last line alone must not look like a proof.
    #[test]
    fn worlds_that_came_to_little_are_not_accepted() {
        let mut report = SweepReport {
            options: SweepOptions::default(),
            failures: Vec::new(),
            meta: Meta::default(),
            mutants: Vec::new(),
            sums: Sums {
                worlds: COVERAGE_WORLDS_MIN - 1,
                ..Sums::default()
            },
        };
        let last = |report: &SweepReport| report.to_string().lines().next_back().map(str::to_owned);
        let last_line = last(&report).unwrap();
        assert!(report.holds() && last_line.starts_with("no violation, but no evidence"));
        assert!(
            last_line.ends_with("99 worlds passed, 0 failed"),
            "{last_line}"
        );
        report.sums.worlds = COVERAGE_WORLDS_MIN;
        assert!(last(&report).unwrap().starts_with("REJECTED: "));
        for situation in Situation::ALL.into_iter().filter(|it| it.is_asked_for()) {
            report.sums.coverage.reached(situation);
        }
        assert!(last(&report).unwrap().starts_with("accepted: "));
    }

    #[test]
    fn a_failure_is_told_with_its_end_and_its_replay() {
        let options = SweepOptions {
            first: 0,
            seeds: 1,
            faults_s: 20,
            mutant: Some(Mutant::BeginsAlone),
            ..SweepOptions::default()
        };
        let report = sweep(options, &mut Vec::new()).unwrap();
        assert!(!report.holds() && report.meta.holds(), "{report}");
        assert_eq!(report.meta.again, Some(true));
        let text = report.to_string();
        assert!(text.contains("VIOLATION  "), "{text}");
        assert!(text.contains("what the last command changed"), "{text}");
        let replay = "replay: muster chaos sim --first 0 --seeds 1 --faults-seconds 20 \
                      --skip-mutants --mutant begins-alone";
        assert!(text.contains(replay), "{text}");
    }
}
